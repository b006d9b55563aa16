"""The receiving half of a connection: where bytes wait until they are a request, or until it may be handled.

Whole requests are handled where they were received, which is mostly the loop's shared chunk. What is left of a read has
one of three places (see also `buffers`):

- `_head`: a few bytes that do not say yet how long the request is and of which kind. They are kept beside the chunk.
- `_partial`: the beginning of a request, in a buffer of that request's size. The rest is received into it.
- `_aside`: whole requests that must wait, because the client does not read its answers, or has too many requests in the
  air, or has had its turn, or because there is no memory for the next. Then nothing more is read until `_resume`.
"""

from __future__ import annotations

import asyncio
from typing import ClassVar, Final

from halfmoon.adapters.tcp.buffers import SMALLEST_BYTES, ReceiveBuffer
from halfmoon.adapters.tcp.listener import Listener
from halfmoon.adapters.tcp.turns import CONNECTION

CONTROL_TURN_BYTES: Final = 64 << 10
"""After this much of requests that become objects, other connections have their turn. They cost up to ten
microseconds a byte, and half a megabyte of them may lie in one read."""

LARGE_REQUEST_BYTES: Final = 128 << 10
"""After a request of this size the next is expected to be large too: only its beginning is received into the chunk."""


class Receiving:
    """Everything runs in the loop's thread. Whoever derives from it has the requests and their answers."""

    START_BYTES: ClassVar[int] = 4
    """From so many bytes on, `_whole` can tell how long a request is."""

    def __init__(self, listener: Listener) -> None:
        self._listener = listener
        self._pool = listener.pool
        self._counters = listener.counters
        self._transport: asyncio.Transport
        self._closed = False
        """Nothing is handled any more."""
        self._finishing = False
        """Nothing is read any more; what was asked is still answered."""
        self._active = True
        """Something was received since the last sweep."""
        self._turn_bytes = 0
        """Of requests handled in this turn that became objects."""
        self._turn_until = 0.0
        self._doing = CONNECTION
        """The last request, by its name; what a long turn is about."""
        self._chunk: ReceiveBuffer | None = None
        self._head = b""
        self._partial: ReceiveBuffer | None = None
        self._partial_bytes = 0
        self._partial_size = 0
        self._partial_since_ms = 0
        self._aside: ReceiveBuffer | None = None
        self._aside_start = 0
        self._aside_end = 0
        self._aside_kept = False
        """Whether the log may keep slices of `_aside`."""
        self._own: ReceiveBuffer | None = None
        """What is being handled lies in this buffer of the connection's own."""
        self._own_retained = False
        """A request that is not done has taken it over."""
        self._expect_large = False
        self._reading_paused = False

    # What the other half does.

    def _handle(self, view: memoryview) -> tuple[int, bool]:
        """Handle the whole requests at the start of `view`; returns how many bytes, and whether the log keeps some."""
        raise NotImplementedError

    def _blocked(self) -> bool:
        """Whether no further request may be handled now."""
        raise NotImplementedError

    def _whole(self, start: memoryview) -> int:
        """How many bytes the request takes that begins so (`START_BYTES` at least are there), its length included; 0
        after closing the connection, because such a request is not taken."""
        raise NotImplementedError

    # From the socket.

    def get_buffer(self, sizehint: int) -> memoryview:
        partial = self._partial
        if partial is not None:
            return partial.view[self._partial_bytes : self._partial_size]
        chunk = self._chunk = self._pool.chunk()
        start = chunk.used + len(self._head)
        if self._expect_large or self._pool.exhausted:
            # On TLS, too, where it costs a turn: the loop's next read decrypts the more at once. With a whole chunk, or
            # a buffer as large as the last request, Produce of 1 MiB took a quarter more CPU.
            return chunk.view[start : chunk.used + SMALLEST_BYTES]
        return chunk.view[start:]

    def buffer_updated(self, nbytes: int) -> None:
        self._active = True
        self._begin_turn()
        self._counters.bytes_in += nbytes
        partial = self._partial
        if partial is not None:
            self._partial_bytes += nbytes
            if self._partial_bytes == self._partial_size:
                self._partial = None
                self._handle_own(partial, 0, self._partial_size, False)
                self._listener.round_time.end(self._doing)
            return
        chunk = self._chunk
        assert chunk is not None
        start = chunk.used
        end = start + nbytes
        if self._head:
            # The chunk may have served others since; this connection's few bytes were kept beside it.
            end += len(self._head)
            chunk.view[start : start + len(self._head)] = self._head
            self._head = b""
        handled, kept = self._handle(chunk.view[start:end])
        rest = chunk.view[start + handled : end]
        if len(rest) and not self._closed and not self._keep_rest(rest):
            self._set_aside(rest)
        if kept:
            chunk.used = start + handled
            self._pool.pin(chunk)
        self._listener.round_time.end(self._doing)

    def _drop_received(self) -> None:
        """The connection is gone: give the buffers back."""
        self._pool.forget(self._resume_soon)
        for buffer in (self._partial, self._aside):
            if buffer is not None:
                self._release(buffer, self._aside_kept if buffer is self._aside else False)
        self._partial = self._aside = None

    # Its turn.

    def _begin_turn(self) -> None:
        self._turn_bytes = 0
        self._turn_until = self._listener.round_time.begin()

    def _turn_is_over(self) -> bool:
        """Whether others come first. Asked when one request at least is handled."""
        return self._turn_bytes > CONTROL_TURN_BYTES or self._listener.round_time.is_over(self._turn_until)

    # What cannot be handled yet.

    def _keep_rest(self, rest: memoryview) -> bool:
        """Keep what is left of a read, the beginning of a request.

        False if it must be set aside: it is whole requests that must wait, or there is no memory now.
        """
        if self._blocked():
            return False
        if len(rest) < self.START_BYTES:
            self._head = bytes(rest)
            return True
        size = self._whole(rest)
        if not size:
            return True
        if len(rest) >= size:
            return False
        buffer = self._pool.take(size)
        if buffer is None:
            self._pool.forget(self._resume_soon)
            self._pool.wait(self._resume_soon)
            return False
        buffer.view[: len(rest)] = rest
        self._partial = buffer
        self._partial_bytes = len(rest)
        self._partial_size = size
        self._partial_since_ms = self._listener.mono_ms()
        self._expect_large = size >= LARGE_REQUEST_BYTES
        return True

    def _set_aside(self, rest: memoryview) -> None:
        """Copy what was received and read no more, until `_resume`."""
        buffer = self._pool.take_anyway(len(rest))
        buffer.view[: len(rest)] = rest
        self._aside = buffer
        self._aside_start = 0
        self._aside_end = len(rest)
        self._aside_kept = False
        self._wait_aside()

    def _wait_aside(self) -> None:
        """Read no more until `_resume`. Where only the turn is over, nobody else will call that."""
        self._pause_reading()
        if self._turn_is_over():
            self._listener.loop.call_soon(self._resume)

    def _handle_own(self, buffer: ReceiveBuffer, start: int, end: int, kept_before: bool) -> None:
        """Handle what lies in a buffer of this connection's own, and give the buffer back if nothing is left in it."""
        if end - start < LARGE_REQUEST_BYTES:
            self._expect_large = False
        self._own, self._own_retained = buffer, False
        handled, kept = self._handle(buffer.view[start:end])
        self._own = None
        start += handled
        if self._own_retained:
            if start < end and not self._closed:
                self._set_aside(buffer.view[start:end])
            return
        kept |= kept_before
        if start < end and not self._closed and not self._keep_rest(buffer.view[start:end]):
            self._aside, self._aside_start, self._aside_end, self._aside_kept = buffer, start, end, kept
            self._wait_aside()
            return
        self._release(buffer, kept)

    def _release(self, buffer: ReceiveBuffer, kept: bool) -> None:
        if kept:
            self._pool.pin(buffer)
        else:
            self._pool.give_back(buffer)

    def _pause_reading(self) -> None:
        if not self._reading_paused:
            self._reading_paused = True
            if not self._transport.is_closing():
                self._transport.pause_reading()

    def _resume_soon(self) -> None:
        """Go on in a fresh call from the loop, since this may be inside a handler or a write."""
        if self._reading_paused and not self._closed:
            self._listener.loop.call_soon(self._resume)

    def _resume(self) -> None:
        """Handle what was set aside, and read again if nothing speaks against it any more."""
        if self._closed or not self._reading_paused or self._blocked():
            return
        self._begin_turn()
        buffer = self._aside
        if buffer is not None:
            self._aside = None
            self._handle_own(buffer, self._aside_start, self._aside_end, self._aside_kept)
            self._listener.round_time.end(self._doing)
        if self._may_read():
            self._reading_paused = False
            self._transport.resume_reading()

    def _may_read(self) -> bool:
        return self._aside is None and not self._closed and not self._finishing and not self._blocked()
