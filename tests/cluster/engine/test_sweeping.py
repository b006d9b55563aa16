from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import pytest

from halfmoon.cluster.engine.database import Commit, CondemnedError, DatabaseUnavailableError
from halfmoon.cluster.engine.objects import StoreUnavailableError
from halfmoon.cluster.engine.pieces import Durability, Piece
from halfmoon.cluster.engine.sweeping import Sweeper
from tests.cluster.engine.doubles import MemoryDatabase, MemoryStore, unsure_database, unsure_store
from tests.cluster.engine.standby import WithStandby
from tests.cluster.engine.virtual import play

DEAD_S = 3600.0
LATER = datetime.now(UTC) + timedelta(hours=25)


async def committed(database: MemoryDatabase, store: MemoryStore, keys: Sequence[str]) -> None:
    """Each holds ten bytes of shard 0."""
    incarnation = await database.register(1, "host", 1, "")
    (head,) = await database.heads()
    taken = await database.take(0, head.epoch, incarnation)
    assert taken is not None
    for number, key in enumerate(keys):
        await store.put(key, b"0123456789")
        piece = Piece(10 * number, 10 * number + 10, 0, 0, key)
        assert await database.commit_object(key, 10, [Commit(0, taken.epoch, (piece,))]) == {0}


def test_what_is_dead_goes_after_a_while() -> None:
    async def run() -> None:
        database, store = MemoryDatabase([Durability.OBJECT]), MemoryStore()
        await committed(database, store, ["c/o/1", "c/o/2"])
        await database.drop(0, 1, 10)
        sweeper = Sweeper(database, store, "c/")
        assert await sweeper.delete_dead(DEAD_S) == 0
        await asyncio.sleep(DEAD_S + 1)
        assert await sweeper.delete_dead(DEAD_S) == 1
        assert set(store.objects) == set(database.objects) == {"c/o/2"}

    play(run())


def test_leftovers_go_and_what_is_young_or_known_stays() -> None:
    async def run() -> None:
        database, store = MemoryDatabase([Durability.OBJECT]), MemoryStore()
        await committed(database, store, ["c/o/1", "c/o/2"])
        for number in range(10):
            await store.put(f"c/o/leftover-{number}", b"x")
        await store.put("of another cluster", b"x")
        sweeper = Sweeper(database, store, "c/")
        assert await sweeper.delete_leftovers() == 0
        assert await sweeper.delete_leftovers(LATER) == 10
        assert set(store.objects) == {"c/o/1", "c/o/2", "of another cluster"}

    play(run())


def test_what_has_died_stays_as_long_as_it_is_to_also_where_it_is_old() -> None:
    """Backups and a cluster that goes back to an earlier moment need it."""

    async def run() -> None:
        database, store = MemoryDatabase([Durability.OBJECT]), MemoryStore()
        await committed(database, store, ["c/o/1", "c/o/2"])
        await database.drop(0, 1, 10)
        sweeper = Sweeper(database, store, "c/")
        assert await sweeper.delete_leftovers(LATER) == 0
        assert set(store.objects) == {"c/o/1", "c/o/2"}
        assert await sweeper.delete_dead(7 * 24 * 3600) == 0

    play(run())


def test_a_commit_that_comes_after_all_finds_its_object_condemned_or_keeps_it() -> None:
    """Whoever is first decides."""

    async def run() -> None:
        for first in ("commit", "sweep"):
            database, store = MemoryDatabase([Durability.OBJECT]), MemoryStore()
            await committed(database, store, ["c/o/1"])
            await store.put("c/o/2", b"0123456789")
            late = Commit(0, 1, (Piece(10, 20, 0, 0, "c/o/2"),))

            class Late(MemoryDatabase):
                async def condemn(self, keys: Sequence[str]) -> None:
                    if first == "commit":  # noqa: B023
                        await self.commit_object("c/o/2", 10, [late])  # noqa: B023
                    await super().condemn(keys)

            database.__class__ = Late
            deleted = await Sweeper(database, store, "c/").delete_leftovers(LATER)
            if first == "commit":
                assert deleted == 0
                assert "c/o/2" in store.objects
            else:
                assert deleted == 1
                await asyncio.sleep(24 * 3600)
                await Sweeper(database, store, "c/").delete_dead(DEAD_S)
                with pytest.raises(CondemnedError):
                    await database.commit_object("c/o/2", 10, [late])

    play(run())


@pytest.mark.parametrize("seed", range(20))
def test_calls_that_fail_are_made_up_for(seed: int) -> None:
    async def run() -> None:
        dice = random.Random(seed)
        database, store = MemoryDatabase([Durability.OBJECT]), MemoryStore()
        await committed(database, store, [f"c/o/{number}" for number in range(6)])
        await database.drop(0, 1, 30)
        for number in range(6):
            await store.put(f"c/o/leftover-{number}", b"x")
        await asyncio.sleep(4_000)
        unsure = unsure_database(database, dice), unsure_store(store, dice)
        unsure[1].list = store.list
        for one in unsure:
            one.share = 0.2
        sweeper = Sweeper(*unsure, "c/")
        for _ in range(1_000):
            try:
                await sweeper.delete_dead(DEAD_S)
                await sweeper.delete_leftovers(LATER)
            except (DatabaseUnavailableError, StoreUnavailableError):
                continue
            break
        assert set(store.objects) == {"c/o/3", "c/o/4", "c/o/5"}
        assert set(store.objects.values()) == {b"0123456789"}

    play(run())


def test_what_may_be_alive_at_a_standby_is_not_deleted() -> None:
    """It died by a call that nobody answered; who takes over knows nothing of it."""

    async def run() -> None:
        database, store = WithStandby([Durability.OBJECT]), MemoryStore()
        await committed(database, store, ["c/o/1", "c/o/2"])
        sweeper = Sweeper(database, store, "c/")
        database.stuck = True
        with pytest.raises(DatabaseUnavailableError):
            await database.drop(0, 1, 10)
        await asyncio.sleep(DEAD_S + 1)
        for _ in range(3):
            with pytest.raises(DatabaseUnavailableError):
                await sweeper.delete_dead(DEAD_S)
        assert set(store.objects) == {"c/o/1", "c/o/2"}
        database.fail_over()
        assert await sweeper.delete_dead(DEAD_S) == 0
        assert {piece.key for piece in (await database.contents(0)).pieces} == set(store.objects)

    play(run())


def test_a_leftover_is_deleted_once_the_standby_knows_that_it_is_condemned() -> None:
    """Whoever has taken over would take the commit that comes after all."""

    async def run() -> None:
        database, store = WithStandby([Durability.OBJECT]), MemoryStore()
        await committed(database, store, ["c/o/1"])
        await store.put("c/o/2", b"0123456789")
        sweeper = Sweeper(database, store, "c/")
        database.stuck = True
        for _ in range(3):
            with pytest.raises(DatabaseUnavailableError):
                await sweeper.delete_leftovers(LATER)
        database.fail_over()
        late = Commit(0, 1, (Piece(10, 20, 0, 0, "c/o/2"),))
        assert await database.commit_object("c/o/2", 10, [late]) == {0}
        assert await sweeper.delete_leftovers(LATER) == 0
        assert set(store.objects) == {"c/o/1", "c/o/2"}

    play(run())
