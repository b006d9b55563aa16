"""A node that does not hear of the catalog answers no client."""

from __future__ import annotations

import asyncio

from halfmoon.adapters.tcp.turns import Turns
from halfmoon.server.nodes.catalog_watch import STALE_S, CatalogWatch
from tests.cluster.engine.virtual import play


class Door:
    def __init__(self) -> None:
        self.is_shut = False
        self.reasons: list[str] = []

    def shut(self, reason: str) -> None:
        self.is_shut = True
        self.reasons.append(reason)

    def open_again(self) -> None:
        self.is_shut = False


def test_doors_are_shut_while_nothing_is_heard() -> None:
    async def story() -> None:
        loop = asyncio.get_running_loop()
        heard_s = loop.time()
        doors = [Door()]
        watch = CatalogWatch(lambda: heard_s, lambda: doors, Turns(loop.time))
        watch.start()
        await asyncio.sleep(STALE_S - 0.1)
        assert not doors[0].is_shut
        assert watch.problems() == []
        await asyncio.sleep(1)
        assert doors[0].is_shut
        assert watch.problems() == [f"the catalog was not confirmed for {STALE_S:g} s: no client is answered"]
        doors.append(Door())  # of a shard that comes meanwhile
        await asyncio.sleep(1)
        assert doors[1].is_shut
        heard_s = loop.time()
        await asyncio.sleep(1)
        assert [door.is_shut for door in doors] == [False, False]
        assert watch.problems() == []
        watch.stop()
        await asyncio.sleep(2 * STALE_S)
        assert not doors[0].is_shut

    play(story())


def test_doors_are_shut_before_anything_runs_after_a_pause() -> None:
    async def story() -> None:
        now_s = 0.0
        door, turns = Door(), Turns(lambda: now_s, lambda: 0.0)
        watch = CatalogWatch(lambda: 0.0, lambda: [door], turns)
        watch.start()
        turns.begin(now_s := STALE_S - 0.1)
        assert not door.is_shut
        turns.begin(now_s := 60.0)
        assert door.is_shut
        watch.stop()
        assert turns.on_look is None

    play(story())
