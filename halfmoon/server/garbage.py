"""Python's garbage collector in a process that is a broker and nothing else (docs/decisions/0079, 0136).

What lives when it starts lives until the end, and a look over it would stop the loop for 10 ms. What comes later goes
by itself when it is not needed any more: connections and requests leave no cycles behind, but for errors, which are few
and mostly found while they are young. Deleted topics are taken apart (`Catalog.bury`).

Plugins and libraries may leave cycles that have grown old. Python's own rule looks at all that is old at once: with
100,000 partitions that takes 0.5 s. So we look often enough that little is new, and what a look has found to live is
*frozen* once it is much: no later look goes over it. Frozen containers go as others do when nobody points at them; only
cycles of them stay. So a plugin can lose what it holds in cycles at the moment of a freeze, and no more than that.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import time

AFTER = 2_500
"""Garbage is looked for after so many more containers were made than went. With Python's 700 that happens several times
a second beside 1,000 consumers that wait, for 1 to 20 ms."""
YOUNG_LOOKS = 1
"""After more looks than these at what is new, what has stayed is looked at once more: after 7,500 containers, and for
a few milliseconds."""
NEVER = 1 << 30

LOOK_S = 600.0
GROWN = 2
"""Second looks at what is young until all that is not frozen is looked at: 15,000 containers have grown old at most."""
MUCH_GROWN = 5
"""If there were so many before the loop came to it, nothing old is looked at, and all is frozen."""
MOST_LIVING = 10_000
"""Containers. If more are alive after a look, they are frozen. So a look goes over some 25,000 at most, which takes 1
to 2 ms where the processor has them in its caches, and up to 10 where it has not."""

logger = logging.getLogger("halfmoon.server")


def collect_rarely() -> None:
    """Freeze what there is, and from now on look at nothing that has grown old."""
    gc.freeze()
    gc.enable()
    gc.set_threshold(AFTER, YOUNG_LOOKS, NEVER)


class Garbage:
    """The looks of one process. Create, start and stop it in the loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._timer: asyncio.TimerHandle | None = None
        self._grown = 0
        """Second looks at what is young since all was looked at."""

    def start(self) -> None:
        collect_rarely()
        gc.callbacks.append(self._collected)
        self._timer = self._loop.call_later(LOOK_S, self._look_again)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            gc.callbacks.remove(self._collected)

    def _look_again(self) -> None:
        self.look()
        self._timer = self._loop.call_later(LOOK_S, self._look_again)

    def _collected(self, phase: str, info: dict[str, int]) -> None:
        """Called by Python in any thread, in the middle of anything."""
        if phase == "stop" and info["generation"] == 1:
            self._grown += 1
            if self._grown == GROWN:
                self._loop.call_soon_threadsafe(self.look)

    def look(self) -> None:
        """At everything that is not frozen."""
        begun_s = time.thread_time()
        much = self._grown >= MUCH_GROWN
        found = gc.collect(1 if much else 2)
        if much or len(gc.get_objects()) > MOST_LIVING:
            gc.freeze()
        took_s = time.thread_time() - begun_s
        self._grown = 0
        logger.debug("event=garbage_collected objects=%d cpu_ms=%.1f", found, took_s * 1000)
