"""Python's garbage collector in a process that is a broker and nothing else (docs/decisions/0079).

What lives when it starts lives until the end, and a look over it would stop the loop for 10 ms. What comes later goes
by itself when it is not needed any more: connections and requests leave no cycles behind, but for errors, which are few
and mostly found while they are young. Deleted topics are taken apart (`Catalog.bury`).

What has grown old is not looked at by Python's own rule: with 100,000 partitions that takes 0.5 s, and 40 ms beside one
request of 50,000 elements. It is looked at now and then for as long as that takes a few milliseconds, since plugins and
libraries may leave cycles.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import time
from collections.abc import Callable

AFTER = 5_000
"""Garbage is looked for after so many more containers were made than went. With Python's 700 that happens several times
a second beside 1,000 consumers that wait, for 1 to 20 ms."""
YOUNG_LOOKS = 1
"""After so many looks at what is new, what has stayed is looked at once more: 10,000 containers, a few milliseconds."""
NEVER = 1 << 30

LOOK_S = 600.0
LONGEST_LOOK_S = 0.01
"""Of the thread's CPU. A look that took longer was the last one."""
MOST_TOPICS = 200
"""With more it may take long, and is not tried."""

logger = logging.getLogger("halfmoon.server")


def collect_rarely() -> None:
    """Freeze what there is, and look at nothing that has grown old."""
    gc.freeze()
    gc.set_threshold(AFTER, YOUNG_LOOKS, NEVER)


class Garbage:
    """The looks of one process. Create, start and stop it in the loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, topics: Callable[[], int]) -> None:
        """`topics`: how many there are."""
        self._loop = loop
        self._topics = topics
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        collect_rarely()
        self._timer = self._loop.call_later(LOOK_S, self.look)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def look(self) -> None:
        """At everything that has come since the start, if that is not much."""
        took_s = 0.0
        if self._topics() <= MOST_TOPICS:
            begun_s = time.thread_time()
            found = gc.collect()
            took_s = time.thread_time() - begun_s
            logger.debug("event=garbage_collected objects=%d cpu_ms=%.1f", found, took_s * 1000)
        if took_s <= LONGEST_LOOK_S:
            self._timer = self._loop.call_later(LOOK_S, self.look)
