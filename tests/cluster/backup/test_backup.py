"""A backup is a cluster of one moment, whole or none; a restore is whole or none, and gives nothing out twice."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest

from halfmoon.cluster.backup import ports, saving
from halfmoon.cluster.backup.copied import MANIFEST, TABLES, Copied
from halfmoon.cluster.backup.ports import EPOCHS
from halfmoon.cluster.backup.restoring import Restoring
from halfmoon.cluster.backup.returning import bring_back
from halfmoon.cluster.backup.saving import Saving
from halfmoon.cluster.engine.objects import StoreUnavailableError
from halfmoon.cluster.engine.pieces import Durability
from halfmoon.cluster.engine.sweeping import Sweeper
from halfmoon.errors import LeaseLostError, StartError
from tests.cluster.backup.worlds import ID, SKIPPED, World, memory, real

Make = Callable[..., AbstractAsyncContextManager[World]]
FORMAT = 2


@pytest.fixture(params=["memory", "postgres"])
def make(request: pytest.FixtureRequest) -> Make:
    return memory if request.param == "memory" else real


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    return tmp_path / "saved"


def play(story: Callable[[], Awaitable[None]]) -> None:
    async def run() -> None:
        await story()

    asyncio.run(run())


def while_copying(world: World, act: Callable[[], Awaitable[Any]]) -> list[Any]:
    """Have something happen between the moment that is read and the first object that is copied; what it returned."""
    get, happened = world.store.get, list[Any]()

    async def after_it(key: str, start: int, end: int) -> bytes:
        if not happened:
            happened.append(None)
            happened[0] = await act()
        return await get(key, start, end)

    world.store.get = after_it  # type: ignore[method-assign]
    return happened


def test_a_cluster_is_there_again_as_it_was_at_one_moment(make: Make, saved: Path) -> None:
    async def story() -> None:
        async with make() as world, make(empty=True) as new:
            await world.fill()
            before = await world.contents()

            async def more() -> None:
                for shard in before:
                    await world.write(shard)

            happened = while_copying(world, more)
            report = await Saving(world.source, world.store, saved).run()
            assert happened
            assert {shard: end for shard, (end, _, _) in before.items()} != {
                head.shard: head.end for head in await world.database.heads()
            }
            assert report.manifest.cluster_id == ID
            assert report.manifest.objects == 2 * 3 + 4
            done: list[tuple[int, int]] = []
            restoring = Restoring(new.target, new.store, saved, progress=lambda *pair: done.append(pair))
            assert await restoring.run(FORMAT) == report.manifest
            assert done[-1] == (report.manifest.objects_bytes,) * 2
            assert await new.contents() == before
            assert new.store.objects == {key: world.store.objects[key] for key in new.store.objects}
            for head, old in zip(await new.database.heads(), await world.database.heads(), strict=True):
                assert (head.epoch, head.owner, head.wanted, head.restored) == (old.epoch + EPOCHS, None, None, True)
            rows = {"change": [], "snapshot": []}  # type: ignore[var-annotated]
            for found in Copied(saved).rows(report.manifest):
                if found.table in rows:
                    rows[found.table] += found.rows
            assert [await _catalog(world), await _catalog(new)] == [rows, rows]
            with pytest.raises(StartError, match="has a cluster already"):
                await Restoring(new.target, new.store, saved).run(FORMAT)
            await new.own_all()
            assert new.me > SKIPPED
            assert await new.database.lineage() != await world.database.lineage()
            await new.write(0)

    play(story)


async def _catalog(world: World) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {"change": [], "snapshot": []}
    async for rows in world.source.read([]):
        if rows.table in found:
            found[rows.table] += [list(row) for row in rows.rows]
    return found


def test_what_is_copied_is_not_deleted_meanwhile(make: Make, saved: Path) -> None:
    async def story() -> None:
        async with make() as world, make(empty=True) as new:
            await world.fill()
            before = await world.contents()
            sweeper = Sweeper(world.database, world.store, f"{ID}/")

            async def drop_all() -> int:
                for head in await world.database.heads():
                    assert await world.database.drop(head.shard, head.epoch, head.end)
                return await sweeper.delete_dead(-1)

            happened = while_copying(world, drop_all)
            await Saving(world.source, world.store, saved).run()
            assert happened == [0]
            assert await sweeper.delete_dead(-1) == 6  # now that nobody copies
            await Restoring(new.target, new.store, saved).run(FORMAT)
            assert await new.contents() == before

    play(story)


def test_a_pin_that_was_not_kept_makes_no_backup(make: Make, saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        async with make() as world:
            await world.fill()
            monkeypatch.setattr(saving, "PINNED_S", 0.01)
            waiting = asyncio.Event()
            while_copying(world, waiting.wait)

            async def too_late(number: int) -> bool:
                return False

            monkeypatch.setattr(world.source, "keep_pinned", too_late)
            with pytest.raises(StartError, match="could not be reached for long"):
                await Saving(world.source, world.store, saved).run()
            assert not (saved / MANIFEST).exists()

    play(story)


def test_pins_end_by_themselves_where_nobody_renews_them(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        async with make() as world:
            await world.fill()
            sweeper = Sweeper(world.database, world.store, f"{ID}/")
            pin = await world.source.pin()
            for head in await world.database.heads():
                assert await world.database.drop(head.shard, head.epoch, head.end)
            assert await sweeper.delete_dead(-1) == 0
            assert await world.source.keep_pinned(pin)
            _expire(monkeypatch)
            assert await world.source.keep_pinned(pin)
            assert not await world.source.keep_pinned(pin)
            assert await sweeper.delete_dead(-1) == 6

    play(story)


def test_what_dies_as_a_pin_is_made_is_kept(make: Make) -> None:
    """The time of its death is that of a statement, whose transaction may end after the pin's, and after the look."""

    async def story() -> None:
        async with make() as world:
            await world.fill()
            sweeper = Sweeper(world.database, world.store, f"{ID}/")
            for head in await world.database.heads():
                assert await world.database.drop(head.shard, head.epoch, head.end)
            pin = await world.source.pin()
            assert await sweeper.delete_dead(-1) == 0
            await world.source.unpin(pin)
            assert await sweeper.delete_dead(-1) == 6

    play(story)


def _expire(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("halfmoon.cluster.postgres.tables", "tests.cluster.backup.worlds"):
        monkeypatch.setattr(f"{module}.PINNED_S", -1.0)


def test_objects_that_an_earlier_backup_has_are_linked(saved: Path) -> None:
    async def story() -> None:
        async with memory() as world, memory(empty=True) as new:
            await world.fill()
            first = await Saving(world.source, world.store, saved).run()
            assert first.linked == 0
            for shard in range(4):
                await world.write(shard)
            rotten = next(iter(Copied(saved).objects(first.manifest)))
            Copied(saved).path_of(rotten).write_bytes(b"rot")
            second = saved.with_name("second")
            report = await Saving(world.source, world.store, second, base=saved).run()
            assert report.linked == first.manifest.objects - 1
            assert report.manifest.objects == first.manifest.objects + 2
            await Restoring(new.target, new.store, second).run(FORMAT)
            assert await new.contents() == await world.contents()

    play(story)


def test_a_store_that_does_not_answer_at_times_is_asked_again(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        async with memory() as world, memory(empty=True) as new:
            await world.fill()
            for module in ("saving", "restoring"):
                monkeypatch.setattr(f"halfmoon.cluster.backup.{module}.PAUSE_S", 0)
            before = await world.contents()
            world.store.get = _every_third(world.store.get)  # type: ignore[method-assign]
            await Saving(world.source, world.store, saved).run()
            new.store.put = _every_third(new.store.put)  # type: ignore[method-assign]
            await Restoring(new.target, new.store, saved).run(FORMAT)
            assert await new.contents() == before

    play(story)


def _every_third(call: Any) -> Any:
    """Fails, and had its effect every second time."""
    count = 0

    async def unsure(*arguments: Any) -> Any:
        nonlocal count
        count += 1
        if count % 3 == 0:
            if count % 2:
                await call(*arguments)
            raise StoreUnavailableError("no answer")
        return await call(*arguments)

    return unsure


def test_a_restore_that_was_interrupted_is_given_again(saved: Path) -> None:
    async def story() -> None:
        async with memory() as world, memory(empty=True) as new:
            await world.fill()
            await Saving(world.source, world.store, saved).run()
            put, left = new.store.put, 4

            async def dies(key: str, data: bytes) -> None:
                nonlocal left
                left -= 1
                if left < 0:
                    raise StoreUnavailableError("down")
                await put(key, data)

            new.store.put = dies  # type: ignore[method-assign]
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr("halfmoon.cluster.backup.restoring.PAUSE_S", 0)
                with pytest.raises(StoreUnavailableError):
                    await Restoring(new.target, new.store, saved).run(FORMAT)
            assert len(new.store.objects) == 4
            await new.target.check_empty()
            new.store.put = put  # type: ignore[method-assign]
            await Restoring(new.target, new.store, saved).run(FORMAT)
            assert await new.contents() == await world.contents()

    play(story)


def test_nothing_is_restored_beside_the_cluster_that_was_backed_up(saved: Path) -> None:
    async def story() -> None:
        async with memory() as world, memory(empty=True) as new:
            await world.fill()
            await Saving(world.source, world.store, saved).run()
            await world.write(2)
            with pytest.raises(StartError, match="the cluster that was backed up is there"):
                await Restoring(new.target, world.store, saved).run(FORMAT)
            await new.target.check_empty()

    play(story)


def _flip(path: Path, at: int = -40) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


DAMAGE: dict[str, tuple[Callable[[Path], object], str]] = {
    "no manifest": (lambda folder: (folder / MANIFEST).unlink(), "is no backup of a cluster"),
    "another manifest": (lambda folder: (folder / MANIFEST).write_text("{}"), "backup.json"),
    "rows": (lambda folder: _flip(folder / TABLES), "is damaged at byte"),
    "fewer rows": (lambda folder: (folder / TABLES).write_bytes((folder / TABLES).read_bytes()[:-9]), "is damaged"),
    "more rows": (lambda folder: (folder / TABLES).write_bytes((folder / TABLES).read_bytes() + b"x"), "has not"),
    "object": (lambda folder: _flip(_an_object(folder), 10), "is damaged behind byte 0"),
    "shorter object": (lambda folder: _an_object(folder).write_bytes(b"x"), "has 1 bytes, and not"),
    "no object": (lambda folder: _an_object(folder).unlink(), "is missing"),
}


def _an_object(folder: Path) -> Path:
    copied = Copied(folder)
    return copied.path_of(next(iter(copied.objects(copied.manifest()))))


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_backup_makes_no_cluster(saved: Path, damage: str) -> None:
    spoil, said = DAMAGE[damage]

    async def story() -> None:
        async with memory() as world, memory(empty=True) as new:
            await world.fill()
            await Saving(world.source, world.store, saved).run()
            spoil(saved)
            with pytest.raises(StartError, match=said):
                await Restoring(new.target, new.store, saved).run(FORMAT)
            await new.target.check_empty()

    play(story)


def test_what_is_damaged_in_the_store_makes_no_backup(saved: Path) -> None:
    async def story() -> None:
        async with memory() as world:
            await world.fill()
            piece = await world.write(2)
            data = bytearray(world.store.objects[piece.key])
            data[100] ^= 1
            world.store.objects[piece.key] = bytes(data)
            with pytest.raises(StartError, match="is damaged"):
                await Saving(world.source, world.store, saved).run()
            del world.store.objects[piece.key]
            with pytest.raises(StartError, match="exists already"):
                await Saving(world.source, world.store, saved).run()
            with pytest.raises(StartError, match="is gone from the store"):
                await Saving(world.source, world.store, saved.with_name("other")).run()
            with pytest.raises(StartError, match="is no backup"):
                await Restoring(world.target, world.store, saved).run(FORMAT)

    play(story)


def test_a_backup_of_a_newer_version_is_refused(saved: Path) -> None:
    async def story() -> None:
        async with memory() as world, memory(empty=True) as new:
            await world.fill()
            await Saving(world.source, world.store, saved).run()
            with pytest.raises(StartError, match="of a newer version"):
                await Restoring(new.target, new.store, saved).run(FORMAT - 1)

    play(story)


def test_a_database_that_was_brought_back_goes_on_if_the_store_has_all_it_names(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("halfmoon.cluster.postgres.tables.LIVING_S", 0)

    async def story() -> None:
        async with make() as world:
            await world.fill()
            before = {head.shard: head for head in await world.database.heads()}
            with pytest.raises(StartError, match="stop the nodes first: 1"):
                await bring_back(world.target, world.store, ID)
            await world.database.leave(world.me)
            key, data = next(iter(world.store.objects.items()))
            for wrong in (b"too short", None):
                del world.store.objects[key]
                if wrong is not None:
                    world.store.objects[key] = wrong
                with pytest.raises(StartError, match=f"the store has not what the database names: {key}"):
                    await bring_back(world.target, world.store, ID)
            assert {head.shard: head for head in await world.database.heads()} == before
            world.store.objects[key] = data
            contents, lineage = await world.contents(), await world.database.lineage()
            await world.store.put(f"{ID}/o/later", b"of after that moment")
            assert await bring_back(world.target, world.store, ID) == (4, 10)
            for head in await world.database.heads():
                assert head == before[head.shard]._replace(
                    epoch=before[head.shard].epoch + EPOCHS, owner=None, restored=True
                )
            assert await world.contents() == contents
            assert await world.database.lineage() != lineage
            with pytest.raises(LeaseLostError):
                await world.database.renew(world.me)
            old = world.me
            await world.own_all()
            assert world.me > old + SKIPPED
            await world.write(0)
            assert {head.durability for head in await world.database.heads()} == set(Durability)

    play(story)


def test_epochs_that_clients_may_have_seen_are_not_given_out_again() -> None:
    """An epoch has 31 bits, so a cluster can be brought back thousands of times."""
    assert (1 << 31) // ports.EPOCHS > 30_000
