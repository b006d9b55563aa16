"""One client's connection: bytes in, requests to handlers, answers out in the order of the requests.

The rules, in the order in which a request meets them:

1. Receiving (see `tcp/receiving.py`). Whole requests are handled where they were received; the rest of a read, if it
   is the beginning of a request, moves into a buffer of that request's size.
2. A request whose bytes make no sense closes this connection, with a logged reason, and touches nothing else. So does
   an API or version that is not offered, as in Kafka; ApiVersions alone is answered in a version the client can read.
3. Requests are handled at once, in their order, however many are unanswered. What has to be checked for long is waited
   for (`keep`), as Kafka does with every request. And a client that does not read its answers, or has
   `MAX_UNANSWERED` requests in the air, is not read from until that has changed. What it had sent is set aside.
4. An answer leaves when all answers before it have left (see `answers.py`). A parked fetch must not delay what comes
   behind it: the next request on its connection ends its wait (`Deferred.hurry`).
5. When all whole requests of one read are handled and something was appended, the broker is told (`on_handled`): it may
   write now.
6. Answers that become ready together are sent together (see `tcp/connection.py`).
7. Where quotas are set, a client that uses too much is told to wait, and is not read from for that time (`throttling`).

No task and no await here, and no log line per request.
"""

from __future__ import annotations

import logging
import struct
from time import perf_counter
from typing import TYPE_CHECKING, Any, ClassVar, Final

from halfmoon.adapters.kafka.answers import Answers, Slot, encode
from halfmoon.adapters.kafka.api.api_18_api_versions import unsupported_version
from halfmoon.adapters.kafka.errors import MalformedRequest
from halfmoon.adapters.kafka.identity import Door, Identified
from halfmoon.adapters.kafka.protocol import LARGE_BYTES, decode_request
from halfmoon.adapters.kafka.registry import Close, Context, Deferred
from halfmoon.adapters.kafka.routes import API_VERSIONS, FETCH, PRODUCE, Route
from halfmoon.adapters.kafka.slicing import InSlices
from halfmoon.adapters.tcp.connection import WRITE_LIMIT_BYTES, Buffer
from halfmoon.kafka_wire import primitives as wire

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from halfmoon.adapters.kafka.registry import ApiTable
    from halfmoon.adapters.kafka.throttling import Throttling
    from halfmoon.adapters.tcp.accepting import Arrival
    from halfmoon.adapters.tcp.access import Access
    from halfmoon.adapters.tcp.buffers import ReceiveBuffer
    from halfmoon.adapters.tcp.listener import Listener
    from halfmoon.adapters.tcp.slices import Slicing
    from halfmoon.services.common.services import Services
    from halfmoon.services.quotas.service import Quotas

MAX_UNANSWERED: Final = 1024
"""Requests of one connection that may wait for their answers."""

MAX_IN_THREADS: Final = 8
"""What one connection may have done in threads at a time: all connections share these."""
MAX_CONTROL_BYTES: Final = 4 << 20
"""The largest request that is not Produce. Such requests become objects, many times the size of their bytes."""

_HEADER: Final = struct.Struct(">Iih")
"""API key and version as one number, correlation id, length of the client id."""
_SIZE: Final = struct.Struct(">i")
_START: Final = struct.Struct(">ih")
"""How a request begins: its size, and its API key."""


class Shared:
    """What all connections of a listener use."""

    def __init__(
        self,
        apis: ApiTable,
        routes: dict[int, Route],
        services: Services,
        slicing: Slicing,
        access: Access | None = None,
        quotas: Quotas | None = None,
    ) -> None:
        """`routes`: as `build_routes` lays them out. What takes long is worked at in turns of `slicing`. `access`: None
        where everybody may do everything. `quotas`: None where they are off."""
        self.apis = apis
        self.routes = routes
        self.services = services
        self.slicing = slicing
        self.access = access
        self.quotas = quotas
        self.throttling: Throttling | None = None
        """Set once there are quotas."""


class Connection(Identified):
    """One accepted connection. Everything runs in the loop's thread."""

    START_BYTES: ClassVar[int] = _START.size
    log: ClassVar[logging.Logger] = logging.getLogger("halfmoon.kafka")

    def __init__(self, listener: Listener, shared: Shared, door: Door, came_as: Arrival | None = None) -> None:
        """`door`: where the client came in. `came_as`: as of tcp.Connection."""
        super().__init__(listener, door, shared.access, came_as)
        self._shared = shared
        self._core = listener.core
        self._log_turn = listener.core.turn
        self._services = shared.services
        self._routes = shared.routes
        self._answers = Answers()
        self._client_raw = b""
        self._client_id: str | None = ""
        self.software = ""
        self.since_ms = listener.mono_ms()
        self._muted: asyncio.TimerHandle | None = None
        """Set while the client has to wait for a quota's sake."""
        self._muted_until_ms = 0
        self._kept: list[ReceiveBuffer] = []
        """Parts of a request that is not done, though its handler is. Those behind it wait (Peer.keep)."""
        self._slices = InSlices(shared.slicing, self.go_on, self._failed)

    def _gone(self) -> None:
        if self._slices.busy:
            self._slices.busy = False
            self.go_on()
        self._slices.drop()
        self._answers.abandon()
        reason = self.login.unfinished() if self.login is not None else ""
        if reason:  # it hangs up (franz-go) where it was told so
            self._log_end(reason)
        self._forget()
        if self._muted is not None:
            self._muted.cancel()
            self._muted = None

    @property
    def apis(self) -> ApiTable:
        return self._shared.apis

    def mute(self, wait_ms: int) -> None:
        """Read nothing from this client for so long; what it has sent meanwhile is handled then."""
        until_ms = self._listener.mono_ms() + wait_ms
        if self._closed or (self._muted is not None and until_ms <= self._muted_until_ms):
            return
        if self._muted is not None:
            self._muted.cancel()
        self._muted_until_ms = until_ms
        self._muted = self._listener.loop.call_later(wait_ms / 1000, self._unmute)
        self._pause_reading()

    def _unmute(self) -> None:
        self._muted = None
        self._active = True
        self._resume_soon()

    def _is_muted(self) -> bool:
        return self._muted is not None

    def _who(self) -> str:
        return self._client_id or ""

    def _waits(self) -> bool:
        return bool(self._answers.slots)

    def _is_done(self) -> bool:
        return self._answers.depend_on_others()

    def _hurry(self) -> None:
        self._answers.hurry()

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
                if size > self._most_bytes or (size < _HEADER.size and not self._is_token(size)):
                    self._malformed(f"a request of {size} bytes")
                    break
                if end - pos - 4 < size or (pos and self._turn_is_over()) or self._blocked():
                    break
                start = pos + 4
                pos = start + size
                request = view[start:pos]
                kept |= self._checked(request) if self._is_checked else self._request(request)
        except Exception as error:
            self._failed(error)
        finally:
            self._handling = False
        if self._log_turn.dirty:
            self._core.on_handled()
        self._flush()
        return pos, kept and self._log_turn.dirty

    def _whole(self, start: memoryview) -> int:
        size, key = _START.unpack_from(start)
        if size > MAX_CONTROL_BYTES and key != PRODUCE:
            self._malformed(f"a request of {size} bytes that is not Produce")
            return 0
        if size > self._most_bytes:
            self._malformed(f"a request of {size} bytes before it has authenticated")
            return 0
        if not self._listener.newcomers.fits(self, size):
            self._malformed(f"a request of {size} bytes before it has authenticated, among others")
            return 0
        return int(4 + size)

    def _blocked(self) -> bool:
        """Whether no further request may be handled now (rule 3)."""
        answers = self._answers
        if self._out_bytes + answers.ready_bytes > WRITE_LIMIT_BYTES:
            self._flush()
            if answers.ready_bytes > WRITE_LIMIT_BYTES:
                return True
        if (
            self._kept
            or self._slices.busy
            or self._loading_bytes > WRITE_LIMIT_BYTES
            or self._in_threads >= MAX_IN_THREADS
        ):
            return True
        if self.login is not None and self.login.is_blocked:
            return True
        return self._write_paused or self._muted is not None or len(answers.slots) >= MAX_UNANSWERED

    def keep(self, part: memoryview) -> memoryview:
        """As Peer says it."""
        own = self._own
        if own is not None:  # a large request has a buffer of its own: it stays as it is
            if not self._own_retained:
                self._own_retained = True
                self._kept.append(own)
            return part
        buffer = self._pool.take_anyway(len(part))
        self._kept.append(buffer)
        kept = buffer.view[: len(part)]
        kept[:] = part
        return kept

    def go_on(self) -> None:
        """As Peer says it."""
        kept, self._kept = self._kept, []
        for buffer in kept:
            self._pool.pin(buffer)
        if self._log_turn.dirty:
            self._core.on_handled()
        self._resume_soon()

    # Requests, one by one.

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
        begun_s = perf_counter()
        if self._answers.slots:
            self._answers.hurry_last()
        self._doing = route.name
        route.metrics.count += 1
        client_id = self._client_id if client_size >= 0 else None
        context = Context(self._core, self._services, self, route.version, correlation_id, client_id, self._rights)
        body = frame[pos:]
        if route.key > FETCH:
            self._turn_bytes += len(body)
        if route.sliced:
            if len(body) > LARGE_BYTES:
                body = self.keep(body)
            result = self._slices.handle(route, context, body, self._turn_until, self._handling_of(route, len(frame)))
            self._take_result(route, correlation_id, result, begun_s)
            return False
        request = body if route.raw else decode_request(route.key, route.version, body)
        throttling = self._shared.throttling
        if throttling is None:
            result = route.handler(context, request)
        else:
            result = throttling.handle(route, context, request, len(frame), self.mute)
        self._take_result(route, correlation_id, result, begun_s)
        return route.keeps_body

    def _handling_of(self, route: Route, size: int) -> Callable[[Context, Any], object]:
        """What handles a request of this size."""
        throttling = self._shared.throttling
        if throttling is None:
            return route.handler
        return lambda context, request: throttling.handle(route, context, request, size, self.mute)

    def _failed(self, error: Exception) -> None:
        """A request makes no sense; or its handler failed, which is a programmer's error and ends here."""
        if isinstance(error, MalformedRequest):
            self._malformed(str(error))
            return
        self._counters.errors += 1
        self.log.error("event=request_failed peer=%s", self.peer, exc_info=error)
        self._close()

    def _take_result(self, route: Route, correlation_id: int, result: object, begun_s: float) -> None:
        if result is None:
            route.metrics.durations.add(perf_counter() - begun_s)
            return
        if isinstance(result, Deferred) and not result.done:
            result.then(self._answers.place(self._answered, route, correlation_id, result, begun_s).finish)
        elif self._answers.slots:
            slot = self._answers.place(self._answered, route, correlation_id, None, begun_s)
            slot.finish(result.value if isinstance(result, Deferred) else result)
        else:
            self._send(route, correlation_id, result.value if isinstance(result, Deferred) else result)
            route.metrics.durations.add(perf_counter() - begun_s)

    def _not_offered(self, key_version: int, correlation_id: int) -> None:
        key, version = key_version >> 16, key_version & 0xFFFF
        if key != API_VERSIONS:
            self._counters.errors += 1
            self._close(f"API {key} is not offered in version {version}")
            return
        route = self._routes[API_VERSIONS << 16]
        route.metrics.count += 1
        self._take_result(route, correlation_id, unsupported_version(self.apis), perf_counter())

    # Answers.

    def _answered(self, slot: Slot, value: object) -> None:
        """The answer of a slot has come; send what is next in order."""
        if self._closed:
            return
        try:
            slot.buffers, slot.size = self._encode(slot.route, slot.correlation_id, value)
        except Exception:
            self._counters.errors += 1
            self.log.exception(
                "event=answer_failed peer=%s api=%s version=%d", self.peer, slot.route.name, slot.route.version
            )
            self._close()
            return
        slot.route.metrics.durations.add(perf_counter() - slot.begun_s)
        size = self._answers.take_ready(slot, self._out)
        if size is None:
            return
        self._out_bytes += size
        if self._handling:
            return
        if self._answers.slots and not self._finishing:
            self._flush_soon()
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
        """As `answers.encode`; a `Close` ends the connection instead."""
        if isinstance(value, Close):
            self._close(value.reason)
            return [], 0
        return encode(route, correlation_id, value)
