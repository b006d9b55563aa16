"""The admin port: /healthz and /metrics over HTTP/1.1, for monitoring, and nothing else.

    GET /healthz   200 `ok`, or 503 with the reasons, one to a line; as JSON where Accept asks for it
    GET /metrics   Prometheus' text format

Where access rules decide (`http_access`), everybody is told whether the broker works; reasons and metrics are for those
who may Describe the cluster, and others get a 401 or 403.

HEAD does the same without the body. Other machines reach it as config/exposure.py says. Whoever connects can cost
little: connections, the size of a request and the time for it are bounded, and scrapes that come while one is under way
get that one's answer. Malformed input gets a 400 and is hung up on. Where all connections are taken, one that has not
asked anything gives way: who says nothing keeps neither a load balancer nor Prometheus out.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections import Counter
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Protocol

from msgspec import Struct

from halfmoon.adapters.tcp.accepting import Arrival, Door, plain_host
from halfmoon.adapters.tcp.newcomers import Newcomers
from halfmoon.adapters.tcp.tls import Tls
from halfmoon.auth.principals import ANONYMOUS
from halfmoon.server import metrics, readings
from halfmoon.server.http_access import NotWhoTheySayError, Visitors
from halfmoon.server.http_message import Answer, BadRequestError, Request, encode, parse
from halfmoon.server.monitoring import Monitoring
from halfmoon.services.audit.lines import TLS, Who

logger = logging.getLogger("halfmoon.http")


LINE_EVERY_S = 1.0
"""So often a malformed request is logged at most. All are counted."""


class Monitored(Protocol):
    """What is told."""

    async def health(self) -> tuple[list[str], list[str]]:
        """What is wrong, and what somebody should know although everything works: a sentence each."""
        ...

    async def metrics(self) -> bytes:
        """In Prometheus' text format."""
        ...

    async def stop(self) -> None: ...


class HttpLimits(Struct, frozen=True):
    """What one client, or all of them together, may ask of this port."""

    connections: int = 32
    head_bytes: int = 8192
    idle_s: float = 75.0
    """How long a connection may be silent between requests; above Prometheus' usual interval."""
    request_s: float = 10.0
    """How long a request may take to arrive, once it has begun."""
    send_s: float = 30.0
    """How long a client may take to receive an answer."""


class HttpCounters(Struct):
    """Since the start, but for `connections`."""

    connections: int = 0
    """Open now."""
    accepted: int = 0
    refused: int = 0
    """Over the limit, or hung up on for others."""
    malformed: int = 0


class HttpServer:
    """Create, start and stop it in its loop's thread."""

    def __init__(
        self,
        app: readings.App,
        limits: HttpLimits | None = None,
        tls: Tls | None = None,
        visitors: Visitors | None = None,
        monitored: Monitored | None = None,
    ) -> None:
        """`visitors`: who is told what; None: everybody everything. `monitored`: None: `app` alone."""
        self._monitored = monitored or Monitoring(app)
        self.visitors = visitors
        self._limits = limits or HttpLimits()
        self._server: asyncio.Server | None = None
        self._door: Door | None = None
        self.loop = asyncio.get_running_loop()
        self.log = logger
        self.newcomers = Newcomers(_mono_ms, self._limits.connections, int(self._limits.request_s * 1000))
        self.tls = tls
        self._arrivals: set[Arrival] = set()
        self._connections: set[asyncio.Task[None]] = set()
        self._silent: dict[asyncio.Task[None], str] = {}
        """Those that have not sent a whole request, with their addresses; the longest silent first."""
        self._next_line_s = 0.0
        self._scrape: asyncio.Task[bytes] | None = None
        self.reuse_port = False
        """Other processes of this user listen at the same address (SO_REUSEPORT)."""
        self.counters = HttpCounters()

    @property
    def logins(self) -> Mapping[tuple[str, str], int]:
        return {} if self.visitors is None else self.visitors.results

    async def start(self, bind: tuple[str, int]) -> tuple[str, int]:
        """Listen; returns the address, with the port that was chosen if `bind`'s is 0. Raises OSError."""
        host, port = bind
        if self.tls is not None:
            self._door = Door(self, self.tls, self._make)
            return await self._door.open(bind, reuse_port=self.reuse_port)
        self._server = await asyncio.start_server(
            self._connected, host, port, limit=self._limits.head_bytes, reuse_port=self.reuse_port or None
        )
        address = self._server.sockets[0].getsockname()
        return address[0], address[1]

    async def stop(self) -> None:
        """Hang up on everybody."""
        if self._server is not None:
            self._server.close()
        if self._door is not None:
            self._door.close()
        for arrival in list(self._arrivals):
            arrival.finish()
        for task in self._connections:
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)
        if self._scrape is not None:
            self._scrape.cancel()
            await asyncio.gather(self._scrape, return_exceptions=True)
        await self._monitored.stop()
        if self._server is not None:
            await self._server.wait_closed()

    # What the door asks (adapters/tcp/accepting.Gate).

    def admit(self, arrival: Arrival) -> bool:
        self.newcomers.expire()
        if len(self._connections) >= self._limits.connections and not self._makes_room():
            self.counters.refused += 1
            return False
        self._arrivals.add(arrival)
        return True

    def wait_ms(self, host: str) -> int:
        return 0

    def leave(self, arrival: Arrival) -> None:
        self._arrivals.discard(arrival)

    def log_end(self, peer: str, client: str, reason: str) -> None:
        self.counters.malformed += 1
        logger.debug("event=connection_closed peer=%s reason=%s", peer, reason)

    def shown_no_certificate(self, listener: str, host: str, reason: str) -> None:
        audit = None if self.visitors is None else self.visitors.audit
        if audit is not None:
            audit.login_failed(Who(listener, host, str(ANONYMOUS), TLS), host, reason)

    def _make(self, arrival: Arrival) -> asyncio.BaseProtocol:
        def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            arrival.became()
            self.leave(arrival)
            self._connected(reader, writer)

        return asyncio.StreamReaderProtocol(asyncio.StreamReader(limit=self._limits.head_bytes), connected)

    def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        counters = self.counters
        if len(self._connections) >= self._limits.connections and not self._makes_room():
            counters.refused += 1
            writer.transport.abort()
            return
        counters.accepted += 1
        task = asyncio.get_running_loop().create_task(self._serve(reader, writer))
        self._connections.add(task)
        counters.connections = len(self._connections)
        task.add_done_callback(self._left)

    def _makes_room(self) -> bool:
        """Whether somebody is hung up on who asks nothing just now: who has been silent for the longest, of the address
        that has the most."""
        if not self._silent:
            return False
        ((host, _),) = Counter(self._silent.values()).most_common(1)
        task = next(task for task, of in self._silent.items() if of == host)
        del self._silent[task]
        self.counters.refused += 1
        task.cancel()
        return True

    def _left(self, task: asyncio.Task[None]) -> None:
        self._connections.discard(task)
        self.counters.connections = len(self._connections)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # The limit of 0 makes `drain` wait until all is with the kernel, so that hanging up after it loses nothing.
        writer.transport.set_write_buffer_limits(0)
        task = asyncio.current_task()
        assert task is not None
        peer = writer.get_extra_info("peername")
        host = plain_host(peer[0]) if peer else ""  # who has left already
        try:
            more = True
            while more:
                self._silent[task] = host
                more = await self._exchange(reader, writer, lambda: self._silent.pop(task, None))
        except (TimeoutError, OSError, asyncio.IncompleteReadError):
            pass  # The client is gone, or as good as.
        except Exception:
            logger.exception("event=http_failed")
        finally:
            self._silent.pop(task, None)
            if writer.transport.get_write_buffer_size():
                writer.transport.abort()
            else:
                writer.close()

    async def _exchange(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, asks: Callable[[], object]
    ) -> bool:
        """One request and its answer; whether another may follow. `asks` is called once the request is there."""
        limits = self._limits
        async with asyncio.timeout(limits.idle_s):
            head = await reader.readexactly(1)
        request: Request | None = None
        try:
            async with asyncio.timeout(limits.request_s):
                head += await reader.readuntil(b"\r\n\r\n")
            asks()
            request = parse(head)
            answer = await self._answer(request, writer)
        except asyncio.LimitOverrunError:
            answer = self._malformed(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, "the request is too large", writer)
        except BadRequestError as error:
            answer = self._malformed(HTTPStatus.BAD_REQUEST, str(error), writer)
        keep_alive = request is not None and request.keep_alive
        with_body = request is None or request.method != "HEAD"
        writer.writelines(encode(answer, keep_alive=keep_alive, with_body=with_body))
        async with asyncio.timeout(limits.send_s):
            await writer.drain()
        return keep_alive

    def _malformed(self, status: HTTPStatus, reason: str, writer: asyncio.StreamWriter) -> Answer:
        self.counters.malformed += 1
        now_s = self.loop.time()
        if now_s >= self._next_line_s:
            self._next_line_s = now_s + LINE_EVERY_S
            logger.warning("event=malformed_request peer=%s reason=%s", writer.get_extra_info("peername"), reason)
        return Answer(status, f"{reason}\n".encode())

    async def _answer(self, request: Request, writer: asyncio.StreamWriter) -> Answer:
        if request.path not in ("/healthz", "/metrics"):
            return Answer(HTTPStatus.NOT_FOUND, b"there are /healthz and /metrics\n")
        if request.method not in ("GET", "HEAD"):
            allow = (("Allow", "GET, HEAD"),)
            return Answer(HTTPStatus.METHOD_NOT_ALLOWED, b"GET and HEAD are answered\n", headers=allow)
        try:
            is_shown, refusal = await self._is_shown(request, writer)
            if request.path == "/healthz":
                problems, warnings = await self._monitored.health()
                if not is_shown:
                    return bare_answer(problems, json_wanted=request.wants_json)
                return health_answer(problems, warnings, json_wanted=request.wants_json)
            return refusal or Answer(HTTPStatus.OK, await self._metrics(), metrics.CONTENT_TYPE)
        except Exception:
            logger.exception("event=http_failed path=%s", request.path)
            return Answer(HTTPStatus.INTERNAL_SERVER_ERROR, b"failed; see the broker's log\n")

    async def _is_shown(self, request: Request, writer: asyncio.StreamWriter) -> tuple[bool, Answer | None]:
        """Whether reasons and metrics are, and else what is said of metrics."""
        visitors = self.visitors
        if visitors is None:
            return True, None
        found = writer.get_extra_info("ssl_object")
        certificate = None if found is None else found.getpeercert(binary_form=True)
        authorization = request.headers.get("authorization")
        host = plain_host(writer.get_extra_info("peername")[0])
        try:
            wants = "GET /metrics" if request.path == "/metrics" else None
            if await visitors.may_see(authorization, certificate, host, wants):
                return True, None
            is_known = authorization is not None or certificate is not None
        except NotWhoTheySayError:
            is_known = False
        if is_known or not visitors.challenge:
            return False, Answer(HTTPStatus.FORBIDDEN, b"not allowed to describe the cluster\n")
        return False, Answer(HTTPStatus.UNAUTHORIZED, b"say who you are\n", headers=visitors.challenge)

    async def _metrics(self) -> bytes:
        """The text of a scrape; one that is under way is shared."""
        if self._scrape is None:
            self._scrape = asyncio.get_running_loop().create_task(self._read_and_render())
            self._scrape.add_done_callback(self._scraped)
        return await asyncio.shield(self._scrape)

    def _scraped(self, task: asyncio.Task[bytes]) -> None:
        self._scrape = None

    async def _read_and_render(self) -> bytes:
        return await self._monitored.metrics()


def health_answer(problems: list[str], warnings: list[str], *, json_wanted: bool) -> Answer:
    """200 if there are no problems, else 503 with them. Warnings are told, and change nothing but the word for it."""
    status = HTTPStatus.SERVICE_UNAVAILABLE if problems else HTTPStatus.OK
    if json_wanted:
        word = "unhealthy" if problems else "warning" if warnings else "ok"
        document = {"status": word, "reasons": problems, "warnings": warnings}
        return Answer(status, json.dumps(document).encode() + b"\n", "application/json")
    lines = [*(problems or ["ok"]), *(f"warning: {warning}" for warning in warnings)]
    return Answer(status, "".join(f"{' '.join(line.split())}\n" for line in lines).encode())


def bare_answer(problems: list[str], *, json_wanted: bool) -> Answer:
    """What everybody is told."""
    status = HTTPStatus.SERVICE_UNAVAILABLE if problems else HTTPStatus.OK
    word = "unhealthy" if problems else "ok"
    if json_wanted:
        return Answer(status, json.dumps({"status": word}).encode() + b"\n", "application/json")
    return Answer(status, f"{word}\n".encode())


def _mono_ms() -> int:
    return time.monotonic_ns() // 1_000_000
