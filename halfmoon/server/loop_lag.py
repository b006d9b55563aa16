"""How late the event loop is: a timer that looks at the clock when it is called.

Whatever keeps the loop (a long turn, garbage, another process on the machine) makes every client wait; this sees all of
it, though only in samples. It costs the loop four wake-ups a second.
"""

from __future__ import annotations

import asyncio
import time

from halfmoon.core.durations import Durations

INTERVAL_S = 0.25
BUCKETS_S = (0.001, 0.0025, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)


class LoopLag:
    """Of one loop. Create, start and stop it there."""

    def __init__(self, loop: asyncio.AbstractEventLoop, interval_s: float = INTERVAL_S) -> None:
        self._loop = loop
        self._interval_s = interval_s
        self._timer: asyncio.TimerHandle | None = None
        self._due_s = 0.0
        self.durations = Durations(BUCKETS_S)
        """Delays between the time for which the timer was set and its call; those of less than a ms are the timer's."""

    def start(self) -> None:
        self._due_s = time.perf_counter() + self._interval_s
        self._timer = self._loop.call_later(self._interval_s, self._called)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _called(self) -> None:
        self.durations.add(max(0.0, time.perf_counter() - self._due_s))
        self.start()
