"""What is at the primary alone is lost where its standby takes over: nobody relies on it before the standby has it."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable

import pytest

from halfmoon.cluster.engine import trying
from halfmoon.cluster.engine.backing import Backing
from halfmoon.cluster.engine.committing import RowCommitter
from halfmoon.cluster.engine.pieces import Durability
from tests.cluster.engine.doubles import MemoryStore
from tests.cluster.engine.standby import WithStandby


async def until(is_so: Callable[[], object]) -> None:
    async with asyncio.timeout(20):
        while not is_so():
            await asyncio.sleep(0.001)


async def taken(database: WithStandby, store: MemoryStore) -> Backing:
    """A shard that somebody has."""
    numbers = itertools.count()
    incarnation = await database.register(1, "host", 1, "")
    assert await database.take(0, 0, incarnation) is not None
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
