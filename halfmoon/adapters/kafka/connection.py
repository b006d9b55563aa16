"""One client's connection: bytes in, requests to handlers, answers out in the order of the requests.

The rules, in the order in which a request meets them:

1. Receiving (see `receiving`). Whole requests are handled where they were received; the rest of a read, if it is the
   beginning of a request, moves into a buffer of that request's size.
2. A request whose bytes make no sense closes this connection, with a logged reason, and touches nothing else. So does
   an API or version that is not offered, as in Kafka; ApiVersions alone is answered in a version the client can read.
3. Requests are handled at once, however many are unanswered; but a client that does not read its answers, or has
   `MAX_UNANSWERED` requests in the air, is not read from until that has changed. What it had sent is set aside.
4. An answer leaves when all answers before it have left (`_slots`). A parked fetch must not delay what comes behind it:
   the next request on its connection ends its wait (`Deferred.hurry`).
5. When all whole requests of one read are handled and something was appended, the broker is told (`on_handled`): it may
   write now.
6. Answers that become ready together are sent together. Small pieces are joined, large ones (slices of the mapped log)
   go to the socket uncopied.

No task and no await here, and no log line per request. This, `receiving` and `server` are the adapter's only modules
with asyncio.
"""

from __future__ import annotations

import asyncio
import logging
import struct
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, cast

from halfmoon.adapters.kafka import wire
from halfmoon.adapters.kafka.api.api_18_api_versions import unsupported_version
from halfmoon.adapters.kafka.errors import MalformedRequest
from halfmoon.adapters.kafka.protocol import decode_request, encode_response
from halfmoon.adapters.kafka.receiving import CONTROL_TURN_BYTES, Receiving
from halfmoon.adapters.kafka.registry import Close, Context, Deferred
from halfmoon.adapters.kafka.routes import API_VERSIONS, FETCH, Route

if TYPE_CHECKING:
    from halfmoon.adapters.kafka.server import Server

log = logging.getLogger("halfmoon.kafka")

Buffer = bytes | bytearray | memoryview

MAX_UNANSWERED = 1024
"""Requests of one connection that may wait for their answers."""

WRITE_LIMIT_BYTES = 1 << 20
"""A connection with more than this still to be sent is not read from."""

JOIN_BELOW_BYTES = 4 << 10
"""Pieces smaller than this on average are copied into one before sending: cheaper than an entry each for the kernel."""

WAITS_FOR_OTHERS = frozenset({11, 14})
"""JoinGroup and SyncGroup: their answers depend on other members, so a stopping server does not wait for them."""

_HEADER = struct.Struct(">Iih")
"""API key and version as one number, correlation id, length of the client id."""
_SIZE = struct.Struct(">i")
_RESPONSE = struct.Struct(">ii")
_FLEXIBLE_RESPONSE = struct.Struct(">iib")


class _Gone(asyncio.Transport):
    """In place of the transport of a connection that is lost: the two would hold each other until a garbage
    collection."""

    def is_closing(self) -> bool:
        return True

    def close(self) -> None: ...

    abort = close


_GONE = _Gone()


class Slot:
    """The place of an answer in the order of answers."""

    __slots__ = ("buffers", "connection", "correlation_id", "deferred", "done", "route", "size")

    def __init__(self, connection: Connection, route: Route, correlation_id: int, deferred: Deferred | None) -> None:
        self.connection = connection
        self.route = route
        self.correlation_id = correlation_id
        self.deferred = deferred
        self.buffers: list[Buffer] = []
        self.size = 0
        """Of the buffers, in bytes."""
        self.done = False

    def finish(self, value: object) -> None:
        """The answer is there."""
        self.deferred = None
        self.connection.answered(self, value)


class Connection(Receiving):
    """One accepted connection. Everything runs in the loop's thread."""

    def __init__(self, server: Server) -> None:
        super().__init__(server)
        self._broker = server.broker
        self._routes = server.routes
        self.owner = object()
        self.host = ""
        self.port = 0
        self.peer_host = ""
        self._peer = "?"
        self._slots: deque[Slot] = deque()
        self._ready_bytes = 0
        """Of answers that are ready and wait for one before them."""
        self._out: list[Buffer] = []
        self._out_bytes = 0
        self._out_total = 0
        self._handling = False
        self._flush_scheduled = False
        self._write_paused = False
        self._client_raw = b""
        self._client_id: str | None = ""
        self._idle_since_ms = 0
        self._stalled_since_ms = 0
        self._sent_before = 0

    # The socket's side.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        peer = transport.get_extra_info("peername") or ("?", 0)
        local = transport.get_extra_info("sockname") or ("127.0.0.1", 0)
        self.peer_host = _plain_host(peer[0])
        self._peer = f"{self.peer_host}:{peer[1]}"
        advertised = self._server.advertise
        self.host, self.port = advertised if advertised else (_plain_host(local[0]), local[1])
        self._transport.set_write_buffer_limits(high=WRITE_LIMIT_BYTES)
        self._idle_since_ms = self._stalled_since_ms = self._server.mono_ms()
        if not self._server.admit(self):
            self._closed = True
            self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._closed = True
        self._broker.hold.drop(self.owner)
        self._slots.clear()
        self._out.clear()
        self._drop_received()
        self._server.leave(self)
        self._transport = _GONE

    def eof_received(self) -> bool:
        return False

    def pause_writing(self) -> None:
        self._write_paused = True
        self._pause_reading()

    def resume_writing(self) -> None:
        self._write_paused = False
        self._resume_soon()

    # Requests.

    def _handle(self, view: memoryview) -> tuple[int, bool]:
        """Handle the whole requests at the start of `view`; returns how many bytes, and whether the log keeps some."""
        pos = 0
        end = len(view)
        kept = False
        self._handling = True
        try:
            while end - pos >= 4 and not self._closed:
                (size,) = _SIZE.unpack_from(view, pos)
                if size < _HEADER.size or size > self._server.max_request_bytes:
                    self._malformed(f"a request of {size} bytes")
                    break
                if end - pos - 4 < size or self._turn_bytes > CONTROL_TURN_BYTES or self._blocked():
                    break
                start = pos + 4
                pos = start + size
                kept |= self._request(view[start:pos])
        except MalformedRequest as error:
            self._malformed(str(error))
        except Exception:
            # A programmer's error in a handler. Whatever it was, it ends here and not in the loop.
            self._counters.errors += 1
            log.exception("request failed peer=%s", self._peer)
            self._close()
        finally:
            self._handling = False
        if self._broker.dirty:
            self._broker.on_handled()
        self._flush()
        return pos, kept

    def _blocked(self) -> bool:
        """Whether no further request may be handled now (rule 3)."""
        if self._out_bytes + self._ready_bytes > WRITE_LIMIT_BYTES:
            self._flush()
            if self._ready_bytes > WRITE_LIMIT_BYTES:
                return True
        return self._write_paused or len(self._slots) >= MAX_UNANSWERED

    def _request(self, frame: memoryview) -> bool:
        """Handle one request; True if the log may keep slices of it."""
        key_version, correlation_id, client_size = _HEADER.unpack_from(frame)
        route = self._routes.get(key_version)
        if route is None:
            self._not_offered(key_version, correlation_id)
            return False
        pos = _HEADER.size
        if client_size >= 0:
            raw, pos = wire.take(frame, pos, client_size)
            if raw != self._client_raw:
                self._client_id = wire.text(frame, pos - client_size, client_size)[0]
                self._client_raw = bytes(raw)
        try:
            if route.flexible_request:
                pos = pos + 1 if frame[pos] == 0 else wire.skip_tags(frame, pos)
        except IndexError:
            raise MalformedRequest("the request ends within its header") from None
        requests = self._counters.requests
        requests[route.key] += 1
        if self._slots:
            last = self._slots[-1].deferred
            if last is not None and last.hurry is not None:
                last.hurry()
        context = Context(
            self._broker, self, route.version, correlation_id, self._client_id if client_size >= 0 else None
        )
        body = frame[pos:]
        if route.key > FETCH:
            self._turn_bytes += len(body)
        request = body if route.raw else decode_request(route.key, route.version, body)
        self._take_result(route, correlation_id, route.handler(context, request))
        return route.keeps_body

    def _take_result(self, route: Route, correlation_id: int, result: object) -> None:
        if result is None:
            return
        if isinstance(result, Deferred) and not result.done:
            slot = Slot(self, route, correlation_id, result)
            self._slots.append(slot)
            result.then(slot.finish)
        elif self._slots:
            slot = Slot(self, route, correlation_id, None)
            self._slots.append(slot)
            slot.finish(result.value if isinstance(result, Deferred) else result)
        else:
            self._send(route, correlation_id, result.value if isinstance(result, Deferred) else result)

    def _not_offered(self, key_version: int, correlation_id: int) -> None:
        key, version = key_version >> 16, key_version & 0xFFFF
        if key != API_VERSIONS:
            self._counters.errors += 1
            self._close(f"API {key} is not offered in version {version}")
            return
        route = self._routes[API_VERSIONS << 16]
        self._counters.requests[API_VERSIONS] += 1
        self._take_result(route, correlation_id, unsupported_version())

    # Answers.

    def answered(self, slot: Slot, value: object) -> None:
        """The answer of a slot has come; send what is next in order."""
        if self._closed:
            return
        try:
            slot.buffers, slot.size = self._encode(slot.route, slot.correlation_id, value)
        except Exception:
            self._counters.errors += 1
            log.exception("answer failed peer=%s api=%s version=%d", self._peer, slot.route.name, slot.route.version)
            self._close()
            return
        slot.done = True
        slots = self._slots
        if slots[0] is not slot:
            self._ready_bytes += slot.size
            return
        self._ready_bytes += slot.size
        while slots and slots[0].done:
            ready = slots.popleft()
            self._ready_bytes -= ready.size
            self._out += ready.buffers
            self._out_bytes += ready.size
        if self._handling:
            return
        if slots and not self._finishing:
            # More answers probably come in this round of the loop: send them together.
            if not self._flush_scheduled:
                self._flush_scheduled = True
                self._server.loop.call_soon(self._flush_later)
            return
        self._flush()
        if self._reading_paused:
            self._resume_soon()

    def _send(self, route: Route, correlation_id: int, value: object) -> None:
        """Send an answer that nothing stands before."""
        buffers, size = self._encode(route, correlation_id, value)
        self._out += buffers
        self._out_bytes += size

    def _encode(self, route: Route, correlation_id: int, value: object) -> tuple[list[Buffer], int]:
        """An answer with its size and header in front, as buffers; and their bytes in all."""
        if isinstance(value, Close):
            self._close(value.reason)
            return [], 0
        body: Buffer
        if isinstance(value, list):
            size = sum(map(len, value))
        else:
            body = cast(Buffer, value) if route.raw else encode_response(route.version, value)
            size = len(body)
        if route.flexible_response:
            header = _FLEXIBLE_RESPONSE.pack(size + 5, correlation_id, 0)
        else:
            header = _RESPONSE.pack(size + 4, correlation_id)
        size += len(header)
        if isinstance(value, list):
            return [header, *value], size
        return ([header + body] if size < JOIN_BELOW_BYTES else [header, body]), size

    def _flush_later(self) -> None:
        self._flush_scheduled = False
        self._flush()
        if self._reading_paused:
            self._resume_soon()

    def _flush(self) -> None:
        """Hand what is ready to the socket."""
        out = self._out
        if out and not self._transport.is_closing():
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
            log.warning("connection closed peer=%s client=%r reason=%r", self._peer, self._client_id, reason)
        self._broker.hold.drop(self.owner)
        self._flush()
        self._transport.close()

    def finish(self) -> None:
        """The server stops: answer what was asked, then close. Parked fetches are answered with what there is."""
        self._finishing = True
        self._pause_reading()
        for slot in list(self._slots):
            if slot.deferred is not None and slot.deferred.hurry is not None:
                slot.deferred.hurry()
        self._finish_if_done()

    def _finish_if_done(self) -> None:
        if all(slot.route.key in WAITS_FOR_OTHERS for slot in self._slots):
            self._closed = True
            self._transport.close()

    def abort(self, reason: str) -> None:
        """Close at once; what was not sent is lost."""
        if not self._closed:
            log.warning("connection closed peer=%s client=%r reason=%r", self._peer, self._client_id, reason)
        self._closed = True
        self._transport.abort()

    def sweep(self, now_ms: int, idle_timeout_ms: int | None, send_timeout_ms: int) -> None:
        """Close a connection that is idle, does not read its answers, or stopped in the middle of a request."""
        unsent = self._transport.get_write_buffer_size()
        sent = self._out_total - unsent
        if not unsent or sent != self._sent_before:
            self._sent_before = sent
            self._stalled_since_ms = now_ms
        elif now_ms - self._stalled_since_ms >= send_timeout_ms:
            self.abort("the peer does not read its answers")
            return
        if self._active:
            self._active = False
            self._idle_since_ms = now_ms
        idle_ms = now_ms - self._idle_since_ms
        if self._partial is not None and now_ms - self._partial_since_ms >= send_timeout_ms and self._pool.has_waiters:
            self.abort("the peer sends its request too slowly, and others wait for the memory")
            return
        if self._reading_paused or self._slots or unsent:
            return
        if (self._partial is not None or self._head) and idle_ms >= send_timeout_ms:
            self.abort("the peer stopped in the middle of a request")
        elif idle_timeout_ms is not None and idle_ms >= idle_timeout_ms:
            self._server.counters.idle_closed += 1
            self._closed = True
            self._transport.close()

    def in_thread(self, work: Callable[[], object], then: Callable[[object, BaseException | None], None]) -> None:
        """Run `work` off the loop; `then(result, error)` runs in the loop."""

        def done(future: asyncio.Future[object]) -> None:
            if future.cancelled():
                return
            error = future.exception()
            then(None if error is not None else future.result(), error)

        self._server.loop.run_in_executor(self._server.executor, work).add_done_callback(done)


def _plain_host(host: str) -> str:
    """An IPv4 address as such, also where it reached a socket that speaks IPv6."""
    return host.removeprefix("::ffff:")
