"""What every connection has, whatever it speaks: the socket's side, sending, time-outs, the end.

Answers that become ready together are sent together. Small pieces are joined, large ones (slices of the mapped log) go
to the socket uncopied. A peer that does not read what it is sent is not read from, and closed in the end.

No task and no await here. `receiving`, this and `listener` are the adapters' only modules with asyncio, beside each
adapter's own connection.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable
from functools import partial
from time import perf_counter
from typing import ClassVar, Final, cast

from halfmoon.adapters.tcp.accepting import Arrival, plain_host
from halfmoon.adapters.tcp.gone import GONE
from halfmoon.adapters.tcp.listener import Listener
from halfmoon.adapters.tcp.receiving import Receiving
from halfmoon.adapters.tcp.turns import CONNECTION, LOOK_S

Buffer = bytes | bytearray | memoryview

WRITE_LIMIT_BYTES: Final = 1 << 20
"""A connection with more than this still to be sent is not read from."""

TLS_WRITE_BYTES: Final = 256 << 10
"""So much is encrypted in one turn of the loop: a quarter of a millisecond."""

JOIN_BELOW_BYTES: Final = 4 << 10
"""Pieces smaller than this on average are copied into one before sending: cheaper than an entry each for the kernel."""

_ESTABLISHED: Final = 1
"""TCP's state, as the first byte of TCP_INFO has it (netinet/tcp.h)."""


class Connection(Receiving):
    """One accepted connection. Everything runs in the loop's thread.

    Who derives from it says what a request is (`_whole`, `_handle`, `_blocked`) and what is still to be answered
    (`_waits`, `_is_done`).
    """

    log: ClassVar[logging.Logger]

    def __init__(self, listener: Listener, came_as: Arrival | None = None) -> None:
        """`came_as`: what it was until its TLS handshake was over."""
        super().__init__(listener)
        self._came_as = came_as
        self.owner = object()
        self.host = ""
        self.port = 0
        self.peer_host = ""
        self.peer = "?"
        """The client's address, for people."""
        self._out: list[Buffer] = []
        self._out_bytes = 0
        self._out_total = 0
        self._handling = False
        """Requests are being handled: what is ready leaves when all of one read are."""
        self._flush_scheduled = False
        self._write_paused = False
        self._is_tls = False
        self._idle_since_ms = 0
        self._stalled_since_ms = 0
        self._sent_before = 0
        self._in_threads = 0
        """So much is being done in threads for its requests."""
        self._loading_bytes = 0
        """Of answers that are being read from the disk, or wait for room."""
        self._holds_loaded = False
        """What is still to be sent may have been read from the disk."""

    # What the adapter's connection says.

    def _waits(self) -> bool:
        """Whether requests wait for their answers: such a client is not idle."""
        raise NotImplementedError

    def _is_done(self) -> bool:
        """While the server stops: whether all that was asked, and will be answered, is."""
        raise NotImplementedError

    def _gone(self) -> None:
        """The connection is lost: forget what was asked."""
        raise NotImplementedError

    def _begins(self, since_ms: int | None) -> None:
        """The connection is made; its client has been here since then (monotonic, ms; None: now)."""

    def _is_muted(self) -> bool:
        """Whether the client is not read from because it has used too much: for as long as it is silent it is idle."""
        return False

    @property
    def client(self) -> str:
        return self._who()

    def _who(self) -> str:
        """The client's name for itself, for the log."""
        return ""

    # The socket's side.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        peer = transport.get_extra_info("peername") or ("?", 0)
        local = transport.get_extra_info("sockname") or ("127.0.0.1", 0)
        if isinstance(local, str):  # of a socket in the file system
            local = local, 0
        self.peer_host = plain_host(peer[0])
        self.peer = f"{self.peer_host}:{peer[1]}"
        self.host, self.port = plain_host(local[0]), local[1]
        self._transport.set_write_buffer_limits(high=WRITE_LIMIT_BYTES)
        self._idle_since_ms = self._stalled_since_ms = self._listener.mono_ms()
        self._is_tls = transport.get_extra_info("ssl_object") is not None
        if self._is_tls:
            self._transport.set_write_buffer_limits(high=TLS_WRITE_BYTES)
        arrival, self._came_as = self._came_as, None
        if not self._listener.admit(self, arrival):
            self._closed = True
            self._transport.abort()
        elif arrival is None:
            self._wait_for_turn(self._listener.wait_ms(self.peer_host))
            self._begins(None)
        else:
            self._begins(arrival.became())

    def _wait_for_turn(self, wait_ms: int) -> None:
        """One that comes too early is not read from, and closed after a while; so it is not soon tried again."""
        if wait_ms:
            self._closed = True
            self._pause_reading()
            self._listener.loop.call_later(wait_ms / 1000, self._transport.abort)

    def _certificate(self) -> bytes | None:
        """The client's, DER; None where it has shown none."""
        found = self._transport.get_extra_info("ssl_object")
        certificate: bytes | None = None if found is None else found.getpeercert(binary_form=True)
        return certificate

    def connection_lost(self, exc: Exception | None) -> None:
        turns = self._listener.turns
        turns.begin(perf_counter())
        self._closed = True
        for gone in self._listener.on_gone:
            gone(self.owner)
        self._gone()
        self._out.clear()
        self._drop_received()
        self._listener.newcomers.remove(self)
        self._listener.leave(self)
        self._transport = GONE
        if perf_counter() - turns.begun_s > LOOK_S:
            turns.took(CONNECTION, turns.begun_s)

    def eof_received(self) -> bool:
        return False

    def pause_writing(self) -> None:
        self._write_paused = True
        self._pause_reading()

    def resume_writing(self) -> None:
        self._write_paused = False
        if self._is_tls:
            self._flush()
        self._resume_soon()

    # Sending.

    def _flush_soon(self) -> None:
        """More answers probably come in this round of the loop: send them together."""
        if not self._flush_scheduled:
            self._flush_scheduled = True
            self._listener.loop.call_soon(self._flush_later)

    def _flush_later(self) -> None:
        self._flush_scheduled = False
        self._flush()
        if self._reading_paused:
            self._resume_soon()

    def _flush(self) -> None:
        """Hand what is ready to the socket."""
        out = self._out
        if out and not self._transport.is_closing():
            if self._is_tls and self._out_bytes > TLS_WRITE_BYTES:
                self._write_some()
                return
            size = self._out_bytes
            self._out = []
            self._out_bytes = 0
            self._out_total += size
            self._counters.bytes_out += size
            if len(out) == 1:
                self._transport.write(out[0])
            elif size < JOIN_BELOW_BYTES * len(out):
                self._transport.write(b"".join(out))
            else:
                self._transport.writelines(out)
        if self._finishing:
            self._finish_if_done()

    def _write_some(self) -> None:
        """Hand a part of it to TLS, which encrypts what it is given at once, in the loop, into memory of its own."""
        if self._write_paused:
            return  # `resume_writing` goes on
        out, size, part = self._out, 0, self._out
        for at, each in enumerate(out):
            room = TLS_WRITE_BYTES - size
            if len(each) > room:
                view = memoryview(each)
                part = [*out[:at], view[:room]]
                self._out = [view[room:], *out[at + 1 :]]
                size = TLS_WRITE_BYTES
                break
            size += len(each)
        self._out_bytes -= size
        self._out_total += size
        self._counters.bytes_out += size
        self._transport.write(b"".join(part))
        if not self._write_paused:
            self._flush_soon()

    # The end.

    def _malformed(self, reason: str) -> None:
        self._counters.malformed += 1
        self._close(reason)

    def _close(self, reason: str | None = None) -> None:
        """Close the connection after what was already answered has been sent."""
        if self._closed:
            return
        self._closed = True
        if reason is not None:
            self._log_end(reason)
        self._listener.core.hold.drop(self.owner)
        self._flush()
        if self._out:  # TLS takes a part at a time
            self._transport.writelines(self._out)
            self._out, self._out_bytes = [], 0
        self._transport.close()

    def _log_end(self, reason: str) -> None:
        self._listener.log_end(self.peer, self._who(), reason)

    def finish(self) -> None:
        """The server stops: answer what was asked, then close."""
        self._finishing = True
        self._pause_reading()
        self._hurry()
        self._finish_if_done()

    def _hurry(self) -> None:
        """Answer requests that wait for messages with what there is."""

    def _finish_if_done(self) -> None:
        if self._is_done() and not self._out:
            self._closed = True
            self._transport.close()

    def abort(self, reason: str) -> None:
        """Close at once; what was not sent is lost."""
        if not self._closed:
            self._log_end(reason)
        self._closed = True
        self._transport.abort()

    def sweep(self, now_ms: int, idle_timeout_ms: int | None, send_timeout_ms: int) -> None:
        """Close a connection that is idle, does not read its answers, or stopped in the middle of a request."""
        unsent = self._transport.get_write_buffer_size() + self._out_bytes
        sent = self._out_total + self._out_bytes - unsent
        if not unsent:
            self._holds_loaded = False
        if not unsent or sent != self._sent_before:
            self._sent_before = sent
            self._stalled_since_ms = now_ms
        elif now_ms - self._stalled_since_ms >= send_timeout_ms:
            self.abort("the peer does not read its answers")
            return
        elif self._holds_loaded and self._listener.core.fetch_buffers.has_waiters:
            self.abort("the peer does not read its answers, and others wait for the memory")
            return
        if self._active:
            self._active = False
            self._idle_since_ms = now_ms
        idle_ms = now_ms - self._idle_since_ms
        if self._partial is not None and now_ms - self._partial_since_ms >= send_timeout_ms and self._pool.has_waiters:
            self.abort("the peer sends its request too slowly, and others wait for the memory")
            return
        muted = self._is_muted()
        if (self._reading_paused and not muted) or self._waits() or unsent:
            return
        if muted and idle_ms >= send_timeout_ms and self._peer_has_left():
            self.abort("the peer left while it had to wait for a quota's sake")
        elif (self._partial is not None or self._head) and not muted and idle_ms >= send_timeout_ms:
            self.abort("the peer stopped in the middle of a request")
        elif idle_timeout_ms is not None and idle_ms >= idle_timeout_ms:
            self._counters.idle_closed += 1
            self._closed = True
            self._transport.close()

    def _peer_has_left(self) -> bool:
        """Asked of the kernel: the end of a stream that is not read is not seen."""
        state = self._transport.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0]
        return bool(state != _ESTABLISHED)

    def load(self, size: int, work: Callable[[], object], then: Callable[[object, BaseException | None], None]) -> None:
        """`in_thread`, for what reads `size` bytes for an answer, once there is room for them."""
        self._loading_bytes += size

        def loaded(result: object, error: BaseException | None) -> None:
            self._loading_bytes -= size
            self._holds_loaded = True
            self._listener.core.fetch_buffers.loaded(size)
            then(result, error)

        self._listener.core.fetch_buffers.admit(size, partial(self._begin_load, work, loaded))

    def _begin_load(self, work: Callable[[], object], loaded: Callable[[object, BaseException | None], None]) -> None:
        if self._closed:
            loaded(None, ConnectionAbortedError("the connection is gone"))
        else:
            self.in_thread(work, loaded)

    def soon(self, work: Callable[[], object]) -> None:
        """Run `work` in the loop when others have had their turn."""
        doing = self._doing
        self._listener.loop.call_soon(lambda: self._go_on(doing, work))

    def _go_on(self, doing: str, work: Callable[..., object], *given: object) -> None:
        """A turn of a request whose handler has returned."""
        self._doing = doing
        turns = self._listener.turns
        begun_s = perf_counter()
        work(*given)
        if perf_counter() - begun_s > LOOK_S:
            turns.took(doing, begun_s)

    def in_thread(self, work: Callable[[], object], then: Callable[[object, BaseException | None], None]) -> None:
        """Run `work` off the loop; `then(result, error)` runs in the loop."""
        doing = self._doing

        def done(future: asyncio.Future[object]) -> None:
            self._in_threads -= 1
            if future.cancelled():
                return
            error = future.exception()
            self._go_on(doing, then, None if error is not None else future.result(), error)

        self._in_threads += 1
        self._listener.loop.run_in_executor(self._listener.executor, work).add_done_callback(done)
