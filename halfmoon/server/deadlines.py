"""Wakes the owners of deadlines (core/timers.py) in the loop: one timer, for the earliest."""

from __future__ import annotations

import asyncio
from typing import Final

from halfmoon.core.clock import Clock
from halfmoon.core.timers import Timers

STALL_MS: Final = 100
"""A deadline that is looked at so much later was not kept because the loop, or the machine, stood still."""
READ_S: Final = 0.05
"""Then so long is read what has come meanwhile, before anything expires: heartbeats lie in the sockets."""


class Deadlines:
    def __init__(self, timers: Timers, clock: Clock, loop: asyncio.AbstractEventLoop) -> None:
        self._timers = timers
        self._clock = clock
        self._loop = loop
        self._timer: asyncio.TimerHandle | None = None
        self._deadline_ms = 0
        self._stood_still = False
        """What has come meanwhile is being read."""
        self._stopped = False

    def start(self) -> None:
        self._timers.on_deadline = self._arm
        self._arm_next(0)

    def stop(self) -> None:
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()

    def _arm(self, deadline_ms: int) -> None:
        """Make sure that we wake at `deadline_ms` at the latest; after a stop, no more."""
        if self._stopped:
            return
        timer = self._timer
        if timer is not None:
            if self._deadline_ms <= deadline_ms:
                return
            timer.cancel()
        now_ms = self._clock.mono_ms()
        self._deadline_ms = max(deadline_ms, now_ms)
        self._timer = self._loop.call_later((self._deadline_ms - now_ms) / 1000, self._expire)

    def _expire(self) -> None:
        self._timer = None
        now_ms = self._clock.mono_ms()
        if now_ms - self._deadline_ms > STALL_MS and not self._stood_still:
            self._stood_still = True
            self._timer = self._loop.call_later(READ_S, self._expire)
            return
        self._stood_still = False
        try:
            self._timers.expire(now_ms)
        finally:
            self._arm_next(now_ms + 1)

    def _arm_next(self, not_before_ms: int) -> None:
        deadline_ms = self._timers.next_deadline()
        if deadline_ms is not None:
            self._arm(max(deadline_ms, not_before_ms))
