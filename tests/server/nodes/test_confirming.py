"""Answers that must be current wait for a look that was begun after they were asked for."""

from __future__ import annotations

import asyncio
import random

import pytest

from halfmoon.cluster.engine.pieces import Durability
from halfmoon.server.nodes.confirming import LIMIT_S, Confirming
from tests.cluster.engine.doubles import MemoryDatabase, unsure_database
from tests.cluster.engine.virtual import play


class Asking:
    """A node that has shard 0, as it believes."""

    def __init__(self) -> None:
        self.world = MemoryDatabase([Durability.FAST] * 2)
        self.database = unsure_database(self.world, random.Random(1))
        self.database.pause_s = lambda: 0.1
        self.served: dict[int, tuple[int, float]] = {}
        self.leaving: set[int] = set()
        self.losses = 0
        self.renews = True
        """The lease is renewed again and again."""
        self._renewed_s = 0.0
        self.confirming = Confirming(self.database, self)
        self.me = 0

    @property
    def renewed_s(self) -> float:
        if self.renews:
            self._renewed_s = asyncio.get_running_loop().time()
        return self._renewed_s

    async def take(self) -> None:
        self.me = await self.world.register(1, "host", 1, "")
        head = await self.world.take(0, self.world.shards[0].head.epoch, self.me)
        assert head is not None
        self.served[0] = head.epoch, asyncio.get_running_loop().time()

    async def ask(self) -> bool:
        certain: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self.confirming.ask(certain.set_result)
        return await certain


def test_whoever_has_its_shards_is_certain() -> None:
    async def story() -> None:
        asking = Asking()
        await asking.take()
        assert await asking.ask()
        assert await asyncio.gather(*(asking.ask() for _ in range(100))) == [True] * 100

    play(story())


def test_a_primary_that_can_only_be_read_confirms_nothing() -> None:
    """A standby has come in its place, and others may have taken the shards there."""

    async def story() -> None:
        asking = Asking()
        await asking.take()
        assert await asking.ask()
        asking.renews = False
        await asyncio.sleep(2.0)
        assert await asking.ask(), "the lease is not over"
        await asyncio.sleep(1.0)
        begun_s = asyncio.get_running_loop().time()
        assert not await asking.ask()
        assert asyncio.get_running_loop().time() - begun_s < LIMIT_S + 1
        asking.renews = True
        assert await asking.ask()

    play(story())


def test_a_look_that_was_under_way_when_the_request_came_says_nothing() -> None:
    async def story() -> None:
        asking = Asking()
        await asking.take()
        first = asyncio.ensure_future(asking.ask())
        await asyncio.sleep(0.15)  # the first look has been answered, and the answer is on its way
        await asking.world.leave(asking.me)
        other = await asking.world.register(2, "host", 2, "")
        assert await asking.world.take(0, asking.served[0][0], other) is not None
        second = asyncio.ensure_future(asking.ask())
        assert await first
        assert not await second

    play(story())


def test_what_was_taken_during_the_look_is_certain() -> None:
    async def story() -> None:
        asking = Asking()
        asking.me = await asking.world.register(1, "host", 1, "")
        asked = asyncio.ensure_future(asking.ask())
        await asyncio.sleep(0.15)
        await asking.take()
        assert await asked

    play(story())


def test_without_the_database_nobody_is_certain_and_nobody_waits_for_ever() -> None:
    async def story() -> None:
        asking = Asking()
        await asking.take()
        asking.database.down = True
        loop = asyncio.get_running_loop()
        begun_s = loop.time()
        early = asyncio.ensure_future(asking.ask())
        await asyncio.sleep(LIMIT_S - 1)
        late = asyncio.ensure_future(asking.ask())
        assert not await early
        assert LIMIT_S < loop.time() - begun_s < LIMIT_S + 1
        asking.database.down = False
        assert await late

    play(story())


@pytest.mark.parametrize(("end", "certain"), [("given", True), ("lost", False), ("never", False)])
def test_while_a_shard_is_handed_over_nobody_is_told_before_that_is_known(end: str, certain: bool) -> None:
    """The epoch alone does not say whether this node has given it away, or another one has taken it before."""

    async def story() -> None:
        asking = Asking()
        await asking.take()
        other = await asking.world.register(2, "host", 2, "")
        asking.leaving.add(0)
        assert await asking.world.hand_over(0, asking.served[0][0], other) is not None
        loop = asyncio.get_running_loop()
        begun_s = loop.time()
        asked = asyncio.ensure_future(asking.ask())
        await asyncio.sleep(1)
        assert not asked.done()
        if end != "never":
            asking.leaving.clear()
            del asking.served[0]
            asking.losses += end == "lost"
        assert await asked is certain
        assert (loop.time() - begun_s > LIMIT_S) is (end == "never")

    play(story())


def test_what_was_lost_meanwhile_may_have_been_lost_before() -> None:
    async def story() -> None:
        asking = Asking()
        await asking.take()
        asked = asyncio.ensure_future(asking.ask())
        await asyncio.sleep(0)
        asking.losses += 1
        del asking.served[0]
        assert not await asked
        assert await asking.ask()

    play(story())
