"""Where requests are received: few buffers for many connections, and no copy of what is produced.

A connection owns nothing while it is idle. What it receives goes into one *chunk* shared by all connections of the
loop; whole requests are handled there. Of a request that is not whole yet, the part that came is copied into a buffer
of its own, as large as the request, and the rest is received into that. So 1,000 idle consumers cost no buffer at
all, and a large request is copied at most once, in part.

The log keeps slices of these buffers from append until its next write. Such a buffer is *pinned*: a chunk is filled
further behind the pinned bytes, a request's own buffer is put aside, until the log says that its write is done.

                 ┌──────────── a chunk ────────────┐
      pinned     │ produce │ produce │  free        │   `used` marks the end of what is pinned
                 └─────────────────────────────────┘

All of it counts against one budget. When that is exhausted the log is asked to write now; if that frees nothing, the
connection must stop reading until somebody gives a buffer back.

No socket and no loop here: `after_write` and `flush` are the broker's.
"""

from __future__ import annotations

import mmap
from collections import deque
from collections.abc import Callable
from typing import Final

CHUNK_BYTES: Final = 512 << 10
"""Also the most that is received at once, before the loop looks at the next connection."""

MIN_FREE_BYTES: Final = 64 << 10
"""A chunk with less room left is not offered any more."""

SMALLEST_BYTES: Final = 4 << 10

LARGE_BYTES: Final = 1 << 20

SMALL_BYTES: Final = 64 << 10
RESERVED_PART: Final = 8
"""This part of the budget (an eighth) is for requests of up to SMALL_BYTES, so that a few large ones, which may come
slowly or never, do not keep everybody else out."""

KEPT_BYTES: Final = 16 << 20
"""Buffers given back are kept for the next request up to this sum, because fresh memory costs page faults."""


class ReceiveBuffer:
    """Memory for one request, or a chunk for many. `view` is all of it, which may be more than was asked for."""

    __slots__ = ("let_in", "used", "view")

    def __init__(self, size: int) -> None:
        # The kernel's fresh pages cost nothing until something is received into them; a bytearray is filled with zeroes
        # first, and a size is only what somebody says.
        private = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
        self.view = memoryview(mmap.mmap(-1, size, private) if size >= LARGE_BYTES else bytearray(size))
        self.used = 0
        self.let_in = False
        """It was asked for by `take`, so its request can become whole."""


class BufferPool:
    """All receive buffers of one loop."""

    def __init__(
        self,
        budget_bytes: int,
        after_write: Callable[[Callable[[], None]], None],
        flush: Callable[[], None],
        chunk_bytes: int = CHUNK_BYTES,
    ) -> None:
        self.budget_bytes = budget_bytes
        self.in_use_bytes = 0
        """Bytes of chunks and buffers handed out or pinned."""
        self._let_in = 0
        """Buffers of requests that were let in and are not given back."""
        self._after_write = after_write
        self._flush = flush
        self._chunk_bytes = chunk_bytes
        self._chunk: ReceiveBuffer | None = None
        self._pinned: list[ReceiveBuffer] = []
        self._idle: dict[int, list[ReceiveBuffer]] = {}
        self._idle_bytes = 0
        self._waiting: deque[Callable[[], None]] = deque()

    @property
    def idle_bytes(self) -> int:
        return self._idle_bytes

    def chunk(self) -> ReceiveBuffer:
        """The shared chunk, with room behind `used`. It is the caller's only until the next call, by anyone."""
        chunk = self._chunk
        if chunk is not None and len(chunk.view) - chunk.used >= MIN_FREE_BYTES:
            return chunk
        if chunk is not None and self.in_use_bytes + self._chunk_bytes > self.budget_bytes:
            self._flush()
            if not chunk.used:
                return chunk
        # A full one is pinned, and comes back with the other pinned ones.
        chunk = self._chunk = self._make(self._chunk_bytes)
        return chunk

    def take(self, size: int) -> ReceiveBuffer | None:
        """A buffer of at least `size` bytes; None if the budget has no room for it, not even after a write."""
        size = _size_class(size)
        if self._over(size):
            self._flush()
            if self._over(size):
                return None
        buffer = self._make(size)
        buffer.let_in = True
        self._let_in += 1
        return buffer

    def take_anyway(self, size: int) -> ReceiveBuffer:
        """A buffer for what has been received already and must be put somewhere, budget or not."""
        return self._make(_size_class(size))

    @property
    def exhausted(self) -> bool:
        """Whether the budget is spent. Connections then receive in small steps (SMALLEST_BYTES)."""
        return self.in_use_bytes >= self.budget_bytes

    def _over(self, size: int) -> bool:
        # One request is always let in. Else one larger than the budget would wait for ever, and so would all, once what
        # those who wait have sent already fills it.
        limit = self.budget_bytes
        if size > SMALL_BYTES:
            limit -= limit // RESERVED_PART
        return self._let_in > 0 and self.in_use_bytes + size > limit

    def _make(self, size: int) -> ReceiveBuffer:
        self.in_use_bytes += size
        idle = self._idle.get(size)
        if idle:
            self._idle_bytes -= size
            return idle.pop()
        return ReceiveBuffer(size)

    def give_back(self, buffer: ReceiveBuffer) -> None:
        """The buffer is not needed any more, and nobody keeps a slice of it."""
        size = len(buffer.view)
        self.in_use_bytes -= size
        buffer.used = 0
        if buffer.let_in:
            buffer.let_in = False
            self._let_in -= 1
        if self._idle_bytes + size <= KEPT_BYTES:
            self._idle_bytes += size
            self._idle.setdefault(size, []).append(buffer)
        if self._waiting and not self._over(0):
            # All of them: the first may need more than there is, and the one behind it not. They only make a note.
            waiting, self._waiting = self._waiting, deque()
            for resume in waiting:
                resume()

    def pin(self, buffer: ReceiveBuffer) -> None:
        """The log may keep slices of the buffer; it comes back by itself after the log's next write.

        For the chunk: `used` says how far it is pinned. To be called after the appends, never before: a write may
        happen in between.
        """
        self._pinned.append(buffer)
        if len(self._pinned) == 1:
            self._after_write(self._written)

    def _written(self) -> None:
        pinned, self._pinned = self._pinned, []
        for buffer in dict.fromkeys(pinned):
            if buffer is self._chunk:
                buffer.used = 0
            else:
                self.give_back(buffer)

    def wait(self, resume: Callable[[], None]) -> None:
        """Call `resume` once when a buffer has been given back; in the order of asking.

        It must not come back here at once: buffers are given back in the middle of other things.
        """
        self._waiting.append(resume)

    @property
    def has_waiters(self) -> bool:
        return bool(self._waiting)

    def forget(self, resume: Callable[[], None]) -> None:
        """Take back `wait`, because the connection is gone."""
        if resume in self._waiting:
            self._waiting.remove(resume)

    def trim(self) -> None:
        """Let go of the buffers kept for later. Called now and then, so that a burst does not stay in memory."""
        self._idle.clear()
        self._idle_bytes = 0


def _size_class(size: int) -> int:
    """The next power of two, so that buffers of one class serve requests of about the same size."""
    return max(1 << (size - 1).bit_length(), SMALLEST_BYTES)
