"""A listener: accepts connections, and looks after them all with one timer.

`counters` are plain ints that whoever serves metrics may read at any time.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, defaultdict
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Protocol

from msgspec import Struct, field

from halfmoon.adapters.tcp.buffers import BufferPool
from halfmoon.adapters.tcp.core import Core
from halfmoon.adapters.tcp.round_time import RoundTime
from halfmoon.adapters.tcp.turns import Turns
from halfmoon.config.settings import LimitSettings, Settings
from halfmoon.core.durations import Durations, of_requests
from halfmoon.services.common.services import Services

SWEEP_MS = 5_000
"""How often connections are looked at; a timeout is late by up to this much."""

STOP_MS = 5_000
"""How long a stopping server waits for answers to be sent."""

BACKLOG = 1024


class Counters(Struct):
    """Since the start, but for `connections`."""

    connections: int = 0
    """Open now."""
    accepted: int = 0
    refused: int = 0
    """Connections over the limit."""
    idle_closed: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    malformed: int = 0
    """Connections closed because a request made no sense."""
    errors: int = 0
    """Requests that a handler failed on, and ones for what is not offered."""
    requests: Counter[int] = field(default_factory=Counter)
    """By API key, or request code."""
    durations: defaultdict[int, Durations] = field(default_factory=lambda: defaultdict(of_requests))
    """From a request's arrival to its answer, by the same; waiting included."""


class Accepted(Protocol):
    """A connection, as its listener looks after it. `tcp.connection.Connection` says what each of these does."""

    peer_host: str

    def finish(self) -> None: ...
    def abort(self, reason: str) -> None: ...
    def sweep(self, now_ms: int, idle_timeout_ms: int | None, send_timeout_ms: int) -> None: ...


class Listener:
    """Create, start and stop it in its loop's thread."""

    log: logging.Logger

    def __init__(
        self,
        core: Core,
        services: Services,
        settings: Settings,
        loop: asyncio.AbstractEventLoop,
        *,
        executor: Executor | None = None,
        turns: Turns | None = None,
    ) -> None:
        """`executor` runs cold reads; None takes the loop's own. `turns`: where long turns of the loop are noted."""
        limits = settings.limits
        self.core = core
        self.services = services
        self.on_gone: list[Callable[[object], None]] = [core.hold.drop]
        """Called with the owner of a connection that is gone."""
        self.loop = loop
        self.executor = executor
        self.counters = Counters()
        self.max_request_bytes = limits.max_request_bytes
        self.turns = turns = turns or Turns()
        self.round_time = RoundTime(turns.quick_soon or loop.call_soon, turns.now, turns)
        self.pool = BufferPool(limits.inflight_bytes, core.after_write, core.write)
        self.most_connections: int | None = None
        """So many have file descriptors; None: any number."""
        self._connections: set[Accepted] = set()
        self._listeners: list[asyncio.Server] = []
        self._timer: asyncio.TimerHandle | None = None
        self._all_closed: asyncio.Future[None] | None = None
        self._refusals_logged = False

    async def listen(self, make: Callable[[], asyncio.BaseProtocol], bind: tuple[str, int]) -> tuple[str, int]:
        """Listen; returns the address, with the port that was chosen if `bind`'s is 0. Raises OSError."""
        host, port = bind
        listener = await self.loop.create_server(make, host, port, backlog=BACKLOG)
        self._listeners.append(listener)
        if self._timer is None:
            self._schedule_sweep()
        address = listener.sockets[0].getsockname()
        return address[0], address[1]

    async def stop(self) -> None:
        """Accept no more, let the answers out, close. Takes STOP_MS at most."""
        if self._timer is not None:
            self._timer.cancel()
        for listener in self._listeners:
            listener.close()
        self._all_closed = self.loop.create_future()
        for connection in list(self._connections):
            connection.finish()
        if self._connections:
            await asyncio.wait([self._all_closed], timeout=STOP_MS / 1000)
        for connection in list(self._connections):
            connection.abort("the server stops")
        for listener in self._listeners:
            await listener.wait_closed()

    @property
    def _limits(self) -> LimitSettings:
        """As they are now: some can be changed while the broker runs."""
        return self.core.settings.limits

    def mono_ms(self) -> int:
        return self.core.clock.mono_ms()

    def admit(self, connection: Accepted) -> bool:
        """Take a new connection in, unless there are too many."""
        counters = self.counters
        most, fit = self._limits.max_connections, self.most_connections
        too_few = fit is not None and fit < most
        if len(self._connections) >= (fit if too_few and fit is not None else most):
            counters.refused += 1
            if not self._refusals_logged:
                self._refusals_logged = True
                reason = "file_descriptors" if too_few else "max_connections"
                self.log.warning("event=connection_refused peer=%s reason=%s", connection.peer_host, reason)
            return False
        self._connections.add(connection)
        counters.accepted += 1
        counters.connections = len(self._connections)
        return True

    def leave(self, connection: Accepted) -> None:
        self._connections.discard(connection)
        self.counters.connections = len(self._connections)
        if self._all_closed is not None and not self._connections and not self._all_closed.done():
            self._all_closed.set_result(None)

    def _schedule_sweep(self) -> None:
        shortest_ms = min(self._limits.idle_timeout_ms or SWEEP_MS, self._limits.send_timeout_ms, SWEEP_MS)
        self._timer = self.loop.call_later(shortest_ms / 1000, self._sweep)

    def _sweep(self) -> None:
        now_ms = self.mono_ms()
        limits = self._limits
        try:
            for connection in list(self._connections):
                try:
                    connection.sweep(now_ms, limits.idle_timeout_ms, limits.send_timeout_ms)
                except Exception:
                    self.log.exception("event=callback_failed peer=%s", connection.peer_host)
            self.pool.trim()
            self._refusals_logged = False
        finally:
            self._schedule_sweep()
