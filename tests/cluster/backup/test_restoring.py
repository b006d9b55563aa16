"""A restore whose commit takes long, or is not answered."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from halfmoon.cluster.backup.ports import EPOCHS
from halfmoon.cluster.backup.restoring import Restoring
from halfmoon.cluster.backup.returning import bring_back
from halfmoon.cluster.backup.saving import Saving
from halfmoon.cluster.backup.tables import COLUMNS, Rows
from halfmoon.cluster.engine.database import DatabaseUnavailableError
from halfmoon.cluster.engine.objects import StoreUnavailableError
from halfmoon.cluster.store import Cluster
from halfmoon.errors import StartError
from tests.cluster.backup.worlds import ID, memory, real

FORMAT = 2


@pytest.mark.parametrize("committed", [True, False])
def test_the_database_is_asked_where_it_did_not_say_whether_it_has_committed(tmp_path: Path, committed: bool) -> None:
    saved = tmp_path / "saved"

    async def story() -> None:
        async with memory() as world, memory(empty=True) as new:
            await world.fill()
            await Saving(world.source, world.store, saved).run()
            fill = new.tables.fill

            async def without_an_answer(*arguments: Any) -> None:
                if committed:
                    await fill(*arguments)
                else:
                    arguments[2].append("a lineage")
                raise DatabaseUnavailableError("no answer")

            new.tables.fill = without_an_answer
            restoring = Restoring(new.target, new.store, saved)
            if committed:
                assert (await restoring.run(FORMAT)).cluster_id == ID
                assert await new.contents() == await world.contents()
                return
            with pytest.raises(DatabaseUnavailableError, match=r"^no answer$"):
                await restoring.run(FORMAT)

            async def unreachable() -> str:
                raise DatabaseUnavailableError("down")

            new.tables.lineage = unreachable
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr("halfmoon.cluster.backup.committed.PAUSE_S", 0)
                with pytest.raises(DatabaseUnavailableError, match=r"no answer\. Nobody knows whether"):
                    await restoring.run(FORMAT)

    asyncio.run(story())


def test_a_listing_that_breaks_off_is_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("restoring", "returning"):
        monkeypatch.setattr(f"halfmoon.cluster.backup.{module}.PAUSE_S", 0)

    async def story() -> None:
        async with memory() as world, memory(empty=True) as new:
            await world.fill()
            await Saving(world.source, world.store, tmp_path / "saved").run()
            for each in (world, new):
                listed = each.store.list
                failed = list[str]()

                async def parts(prefix: str, after: str = "", listed: Any = listed, failed: Any = failed) -> Any:
                    async for part in listed(prefix, after):
                        yield part
                    if not failed:
                        failed.append(prefix)
                        raise StoreUnavailableError("no answer")

                each.store.list = parts  # type: ignore[method-assign]
                if each is world:
                    await world.database.leave(world.me)
                    assert (await bring_back(world.target, world.store, ID)).objects == 10
                else:
                    await Restoring(new.target, new.store, tmp_path / "saved").run(FORMAT)
                assert failed

    asyncio.run(story())


def test_a_commit_may_take_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Longer than a node waits for a statement."""

    saved = tmp_path / "saved"

    async def story() -> None:
        from halfmoon.cluster.postgres import connecting, schema

        async with real() as world, real(empty=True) as new:
            await world.fill()
            await Saving(world.source, world.store, saved).run()
            slow = f"""
                create function slowly() returns trigger language plpgsql
                as 'begin perform pg_sleep({connecting.CALL_S + 0.5}); return null; end';
                create constraint trigger slow after insert on cluster deferrable initially deferred
                for each row execute function slowly()"""
            monkeypatch.setattr(schema, "_EMPTY", f"{schema._EMPTY}; {slow}")
            asked: list[str] = []
            lineage = new.tables.lineage

            async def ask() -> str:
                asked.append("")
                return str(await lineage())

            monkeypatch.setattr(new.tables, "lineage", ask)
            await Restoring(new.target, new.store, saved).run(FORMAT)
            assert not asked
            assert await new.contents() == await world.contents()

    asyncio.run(story())


def test_a_database_can_be_filled_as_often_as_it_has_to_be(monkeypatch: pytest.MonkeyPatch) -> None:
    """A rebuild that was interrupted fills it, and leaves no cluster. Each time most incarnations are skipped."""

    async def story() -> None:
        from halfmoon.cluster.postgres import tables

        monkeypatch.setattr(tables.secrets, "randbelow", lambda most: most - 1)
        async with real(empty=True) as new:
            for _ in range(4):
                await new.target.fill(iter([Rows("shard", [(0, "fast", 0, 0)])]), COLUMNS, [])
            assert await new.database.register(1, "host", 7, "") > tables.SKIPPED

    asyncio.run(story())


@pytest.mark.parametrize("make", [memory, real])
def test_who_has_filled_a_database_last_finishes_it(make: Any) -> None:
    """Two rebuilds at once: each would put its catalog over the other's rows."""

    async def story() -> None:
        async with make(empty=True) as new:
            rows = [Rows("shard", [(number, "fast", 0, 0) for number in range(2)])]
            first, second = list[str](), list[str]()
            await new.target.fill(iter(rows), COLUMNS, first)
            await new.target.fill(iter(rows), COLUMNS, second)
            me = await new.database.register(0, "", 0, "")
            assert await new.database.take(0, EPOCHS, me) is not None
            with pytest.raises(StartError, match="the database has"):
                await new.target.lineage()
            with pytest.raises(StartError, match="another rebuild or restore has filled this database"):
                await new.target.finish(Cluster(ID, 2), 1, b"a catalog", *first)
            await new.target.finish(Cluster(ID, 2), 1, b"a catalog", *second)
            assert [await new.target.lineage()] == second
            # What a rebuild was while it read is shown to nobody.
            assert list(await new.database.nodes()) == []
            assert [head.owner for head in await new.database.heads()] == [None, None]

    asyncio.run(story())


def test_the_database_is_asked_once_whoever_fills_it_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """A commit whose answer was lost may be under way still."""

    async def story() -> None:
        from halfmoon.cluster.postgres import tables

        async with real(empty=True) as new:
            filling, go_on, told = asyncio.Event(), asyncio.Event(), list[str]()
            begin_anew = tables._begin_anew

            async def slowly(*arguments: Any) -> int:
                filling.set()
                await go_on.wait()
                return await begin_anew(*arguments)

            monkeypatch.setattr(tables, "_begin_anew", slowly)
            rows = [Rows("cluster", [(ID, 1)]), Rows("shard", [(0, "fast", 0, 0)])]
            fill = asyncio.ensure_future(new.target.fill(iter(rows), COLUMNS, told))
            await filling.wait()
            asking = asyncio.ensure_future(new.target.lineage())
            await asyncio.wait([asking], timeout=0.2)
            assert not asking.done()
            go_on.set()
            assert [await asking] == told
            await fill

    asyncio.run(story())
