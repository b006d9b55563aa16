"""What is at the primary alone is lost where its standby takes over: nobody relies on it before the standby has it."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable

import pytest

from halfmoon.cluster.engine import trying
from halfmoon.cluster.engine.backing import Backing
from halfmoon.cluster.engine.committing import RowCommitter
from halfmoon.cluster.engine.database import Commit, DatabaseUnavailableError
from halfmoon.cluster.engine.pieces import Durability, Piece
from halfmoon.core.crc import crc32c
from tests.cluster.engine.doubles import MemoryDatabase, MemoryStore
from tests.cluster.engine.standby import WithStandby


async def until(is_so: Callable[[], object]) -> None:
    async with asyncio.timeout(20):
        while not is_so():
            await asyncio.sleep(0.001)


async def taken(database: WithStandby, store: MemoryStore) -> Backing:
    """A shard that somebody has."""
    incarnation = await database.register(1, "host", 1, "")
    assert await database.take(0, 0, incarnation) is not None
    return await opened(database, store)


async def opened(database: WithStandby, store: MemoryStore) -> Backing:
    numbers = itertools.count()
    return Backing(
        asyncio.get_running_loop(), database, store, RowCommitter(database), await database.contents(0),
        lambda path: f"f/{path}-{next(numbers)}",
    )  # fmt: skip


def test_a_file_beside_the_log_is_kept_once_the_standby_has_it() -> None:
    """Who is told so forgets what the file stands for: the messages from before they were compacted."""

    async def story() -> None:
        database = WithStandby([Durability.FAST])
        backing = await taken(database, MemoryStore())
        database.waits_s, database.stuck = 0.01, True
        keeping = asyncio.ensure_future(asyncio.to_thread(backing.put_files, {"cleaned/1": b"abc"}))
        await until(lambda: database.given_up == 2)
        assert (await database.contents(0)).files, "all see it"
        assert not keeping.done()
        database.fail_over()
        assert not (await database.contents(0)).files
        await keeping
        assert (await database.contents(0)).files == list(backing.files.values()) != []
        assert set(database.objects) == {"f/cleaned/1-0"}

    asyncio.run(story())


def test_a_file_that_the_standby_does_not_get_in_time_was_not_kept() -> None:
    async def story() -> None:
        database = WithStandby([Durability.FAST])
        backing = await taken(database, MemoryStore())
        database.waits_s, database.stuck = 0.01, True
        with pytest.raises(OSError, match="TimeoutError"):
            await asyncio.to_thread(backing.put_files, {"checkpoint": b"abc"})
        assert database.given_up == trying.TRIES
        assert not backing.files

    asyncio.run(story())


def test_what_an_exchange_has_moved_that_nobody_answered_can_be_read() -> None:
    """The rows are gone for all who look, and the list of the owner has them until the standby is back."""

    async def story() -> None:
        database, store = WithStandby([Durability.FAST]), MemoryStore()
        incarnation = await database.register(1, "host", 1, "")
        head = await database.take(0, 0, incarnation)
        assert head is not None
        datas = [bytes([number]) * 10 for number in range(4)]
        rows = [Piece(10 * at, 10 * at + 10, crc32c(data), 0) for at, data in enumerate(datas)]
        await database.commit_rows([Commit(0, head.epoch, tuple(rows))], [datas])
        backing = await opened(database, store)
        merged = Piece(10, 30, crc32c(datas[1] + datas[2]), 0, "g/1", 0)
        await store.put("g/1", datas[1] + datas[2])
        database.waits_s, database.stuck = 0.01, True
        epoch = backing.epoch
        assert await asyncio.to_thread(backing.read, 5, 35) == [
            (5, datas[0][5:]), (10, datas[1]), (20, datas[2]), (30, datas[3][:5]),
        ]  # fmt: skip
        with pytest.raises(DatabaseUnavailableError):
            await database.replace(0, epoch, rows[1:3], [merged], [("g/1", 20)])
        parts = await asyncio.to_thread(backing.read, 5, 35)
        assert b"".join(part for _, part in parts) == b"".join(datas)[5:35]
        assert [start for start, _ in parts] == [5, 10, 30]
        assert list(backing.pieces) == rows, "it is not certain"
        await store.delete(["g/1"])
        with pytest.raises(OSError, match="the piece at 10 is gone"):
            await asyncio.to_thread(backing.read, 5, 35)
        other = await database.register(2, "host", 1, "")
        assert await MemoryDatabase.hand_over(database, 0, epoch, other) is not None
        with pytest.raises(OSError, match="the piece at 10 is gone from the database"):
            await asyncio.to_thread(backing.read, 5, 35)

    asyncio.run(story())
