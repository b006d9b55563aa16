"""The memory of answers whose records had to be read: from a disk, or by network.

What is near the end of the log is sent as slices of mapped files and takes no memory. What is not here takes as much
as it is long, from the moment it is read until its client has taken it, and a slow client takes its time. So all of it
together is kept to a limit (`limits.fetch_buffer_bytes`). A single answer loads a part of what is left (`allowance`),
so that there is something left for the next; an answer for which there is no room waits for its turn (`admit`).

Freed is what nobody holds a slice of any more, in whatever thread that happens.
"""

from __future__ import annotations

import threading
import weakref
from collections import deque
from collections.abc import Callable

MOST_BYTES = 4 << 20
"""Most that one answer loads, but for a first batch that is larger. Larger ones are not faster: a client that catches
up asks again at once."""

SHARE = 4
"""An answer loads what is left divided by this."""


class _Memory(bytearray):
    """One that tells when it goes. Not a map of its own: fresh pages cost more than half of the time of a read."""

    __slots__ = ("__weakref__",)


class FetchBuffers:
    """Of one node. Everything but `take` is called in the loop's thread."""

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.waited = 0
        """How many answers had to wait for room."""
        self.on_freed: Callable[[], None] = lambda: None
        """Called in any thread when memory was freed and answers wait: have `retry` called in the loop."""
        self._lock = threading.Lock()
        self._in_use = 0
        self._admitted = 0
        self._waiting: deque[tuple[int, Callable[[], None]]] = deque()

    @property
    def in_use_bytes(self) -> int:
        return self._in_use

    @property
    def has_waiters(self) -> bool:
        return bool(self._waiting)

    def allowance(self) -> int:
        """Bytes that one answer may load now, beyond its first batch."""
        left = self.limit_bytes - self._in_use - self._admitted
        return max(0, min(MOST_BYTES, left // SHARE))

    def has_room(self, size: int) -> bool:
        # What is larger than the limit is let in alone: else it would wait for ever.
        taken = self._in_use + self._admitted
        return not taken or taken + size <= self.limit_bytes

    def take(self, size: int) -> memoryview:
        """So much memory, zeroed. For any thread."""
        memory = _Memory(size)
        with self._lock:
            self._in_use += size
        weakref.finalize(memory, self._freed, size).atexit = False
        return memoryview(memory)

    def _freed(self, size: int) -> None:
        with self._lock:
            self._in_use -= size
        if self._waiting:
            self.on_freed()

    def admit(self, size: int, begin: Callable[[], None]) -> None:
        """Call `begin`, which loads so much, when there is room: now, or in the order of asking. Once it is done with
        loading, however that ended, `loaded` is to be called."""
        if not self._waiting and self.has_room(size):
            self._admitted += size
            begin()
        else:
            self.waited += 1
            self._waiting.append((size, begin))

    def loaded(self, size: int) -> None:
        """What was admitted has been loaded (`take` counts it now), or could not be."""
        self._admitted -= size
        self.retry()

    def retry(self) -> None:
        while self._waiting and self.has_room(self._waiting[0][0]):
            size, begin = self._waiting.popleft()
            self._admitted += size
            begin()
