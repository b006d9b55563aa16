"""Whether a node reaches the object store."""

from __future__ import annotations

import asyncio
import contextlib
import random

import pytest

from halfmoon.cluster.engine import store_watch
from halfmoon.cluster.engine.objects import ObjectExistsError, StoreUnavailableError
from halfmoon.cluster.engine.store_watch import FAILING_S, PROBE_S, WatchedStore
from tests.cluster.engine.doubles import MemoryStore, unsure_store


class World:
    def __init__(self) -> None:
        self.now_s = 100.0
        self.inner = MemoryStore()
        self.store = unsure_store(self.inner, random.Random(1))
        self.watched = WatchedStore(self.store, "probe/1", lambda: self.now_s)
        self.names = iter(range(1000))

    async def put(self) -> None:
        with contextlib.suppress(StoreUnavailableError):
            await self.watched.put(f"o/{next(self.names)}", b"data")

    def stored(self) -> set[str]:
        return set(self.inner.objects)


def test_a_store_that_refuses_for_a_while_is_not_reached_and_one_success_says_that_it_is() -> None:
    async def run() -> None:
        world = World()
        await world.put()
        assert world.watched.is_reached
        world.store.down = True
        await world.put()
        world.now_s += FAILING_S - 1
        await world.put()
        assert world.watched.is_reached
        assert world.watched.problems() == []
        world.now_s += 1
        assert not world.watched.is_reached
        assert "refused" in world.watched.problems()[0]
        world.store.down = False
        await world.put()
        assert world.watched.is_reached
        assert world.watched.problems() == []

    asyncio.run(run())


def test_a_store_that_was_never_reached_is_not_waited_for() -> None:
    """A node whose clock is hours off is refused by S3 from the start: it had better take no shards."""

    async def run() -> None:
        world = World()
        world.store.down = True
        await world.watched.begin()
        assert not world.watched.is_reached
        assert "refused" in world.watched.problems()[0]
        world.now_s += PROBE_S
        world.store.down = False
        await world.watched.probe()
        assert world.watched.is_reached
        world.store.down = True
        await world.put()
        assert world.watched.is_reached, "it was reached before"

    asyncio.run(run())


def test_at_the_start_a_name_that_is_taken_is_an_answer_too() -> None:
    async def run() -> None:
        world = World()
        for _ in range(2):
            await world.watched.begin()
            assert world.watched.is_reached
        world.store.down = True
        await world.put()
        assert world.watched.is_reached

    asyncio.run(run())


def test_a_store_that_does_not_answer_does_not_hold_up_a_start(monkeypatch: pytest.MonkeyPatch) -> None:
    async def run() -> None:
        world = World()
        mute = asyncio.Event()
        monkeypatch.setattr(world.store, "put", lambda key, data: mute.wait())
        monkeypatch.setattr(store_watch, "BEGIN_S", 0.01)
        await world.watched.begin()
        assert not world.watched.is_reached
        assert "no answer" in world.watched.problems()[0]

    asyncio.run(run())


def test_a_failure_among_successes_is_none() -> None:
    async def run() -> None:
        world = World()
        for _ in range(10):
            world.store.down = True
            await world.put()
            world.store.down = False
            await world.put()
            world.now_s += FAILING_S
            assert world.watched.is_reached

    asyncio.run(run())


def test_it_is_tried_where_nothing_is_stored() -> None:
    async def run() -> None:
        world = World()
        await world.watched.probe()
        assert world.stored() == set()
        for _ in range(3):  # the second time it is there already
            world.now_s += PROBE_S
            await world.watched.probe()
        assert world.stored() == {"probe/1"}
        world.store.down = True
        for _ in range(int(FAILING_S / PROBE_S) + 1):
            world.now_s += PROBE_S
            await world.watched.probe()
        assert not world.watched.is_reached
        world.store.down = False
        world.now_s += PROBE_S
        await world.watched.probe()
        assert world.watched.is_reached

    asyncio.run(run())


def test_a_name_that_is_taken_is_an_answer() -> None:
    async def run() -> None:
        world = World()
        world.inner.objects["o/0"] = b"other"
        world.store.down = True
        await world.put()
        world.now_s += FAILING_S
        world.store.down = False
        with contextlib.suppress(ObjectExistsError):
            await world.watched.put("o/0", b"data")
        assert world.watched.is_reached

    asyncio.run(run())
