"""Deadlines in the loop."""

from __future__ import annotations

import asyncio

from halfmoon.core.timers import Timers
from halfmoon.server.clock import SystemClock
from halfmoon.server.deadlines import Deadlines


class Owner:
    def __init__(self) -> None:
        self.deadline_ms: int | None = None
        self.expired = asyncio.Event()

    def next_deadline(self) -> int | None:
        return self.deadline_ms

    def expire(self, mono_ms: int) -> None:
        self.deadline_ms = None
        self.expired.set()


def test_what_is_due_after_the_stop_never_expires() -> None:
    """The shard's log is closed then."""

    async def story() -> None:
        clock, timers, owner = SystemClock(), Timers(), Owner()
        timers.add(owner)
        deadlines = Deadlines(timers, clock, asyncio.get_running_loop())
        deadlines.start()
        owner.deadline_ms = clock.mono_ms()
        timers.arm(owner.deadline_ms)
        await asyncio.wait_for(owner.expired.wait(), 5)
        owner.expired.clear()
        deadlines.stop()
        owner.deadline_ms = clock.mono_ms()
        timers.arm(owner.deadline_ms)
        loop = asyncio.get_running_loop()
        later = loop.create_future()
        loop.call_later(0.01, later.set_result, None)  # behind what was armed
        await later
        assert not owner.expired.is_set()

    asyncio.run(story())
