"""A listener: accepts connections, and looks after them all with one timer.

`counters` are plain ints that whoever serves metrics may read at any time.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Any, Protocol

from halfmoon.adapters.tcp.accepting import BACKLOG, Arrival, Door
from halfmoon.adapters.tcp.buffers import BufferPool
from halfmoon.adapters.tcp.core import Core
from halfmoon.adapters.tcp.counters import Counters
from halfmoon.adapters.tcp.newcomers import Newcomers
from halfmoon.adapters.tcp.round_time import RoundTime
from halfmoon.adapters.tcp.tls import Tls
from halfmoon.adapters.tcp.turns import Turns
from halfmoon.auth.principals import ANONYMOUS
from halfmoon.config.settings import LimitSettings, Settings
from halfmoon.services.audit.lines import TLS, Who
from halfmoon.services.audit.service import Audit
from halfmoon.services.common.services import Services

SWEEP_MS = 5_000
"""How often connections are looked at; a timeout is late by up to this much."""

STOP_MS = 5_000
"""How long a stopping server waits for answers to be sent."""

ENDS_LOGGED = 50
"""Of connections that are closed for what their clients did, between two sweeps."""

NEWCOMERS_S = 1.0
"""How often is looked whose time to authenticate is over."""


class Accepted(Protocol):
    """A connection, as its listener looks after it. `tcp.connection.Connection` says what each of these does."""

    peer_host: str

    @property
    def client(self) -> str:
        """As it names itself; empty where it has not."""
        ...

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
        self.audit = services.find(Audit)
        """None where nothing is recorded."""
        self.on_gone: list[Callable[[object], None]] = [core.hold.drop]
        """Called with the owner of a connection that is gone."""
        self.loop = loop
        self.executor = executor
        self.counters = Counters()
        self.max_request_bytes = limits.max_request_bytes
        self.turns = turns = turns or Turns()
        self.round_time = RoundTime(turns.soon(loop.call_soon), turns.now, turns)
        self.pool = BufferPool(limits.inflight_bytes, core.after_write, core.write)
        self.most_connections: int | None = None
        """So many have file descriptors; None: any number."""
        self.reuse_port = False
        """Other processes of this user listen at the same addresses (SO_REUSEPORT)."""
        self.given: dict[tuple[str, int], socket.socket] = {}
        """Sockets that listen at these addresses already: others keep them open, so that clients who come while no
        process is here wait for the next one."""
        self.clock = core.clock
        """By which connections grow old."""
        self.newcomers = Newcomers(self.mono_ms, limits.max_unauthenticated, limits.authentication_timeout_ms)
        self.tls: list[Tls] = []
        self._connections: dict[Accepted, None] = {}
        """In the order in which they came: so they are closed, too."""
        self._hosts: Counter[str] = Counter()
        """How many of them each address has."""
        self._listeners: list[asyncio.Server] = []
        self._doors: list[Door] = []
        self._newcomers_timer: asyncio.TimerHandle | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._all_closed: asyncio.Future[None] | None = None
        self._refusals_logged = False
        self._is_shut = False
        self._ends = 0
        """Connections that were closed for what their clients did, since the last sweep."""

    async def listen(
        self,
        make: Callable[[Arrival | None], Any],
        bind: tuple[str, int],
        tls: Tls | None = None,
        *,
        takes_plain: bool = False,
    ) -> tuple[str, int]:
        """Listen; returns the address, with the port that was chosen if `bind`'s is 0. Raises OSError.

        `make`: makes a connection, from what it was during its TLS handshake. `takes_plain`: as of Door."""
        if self._timer is None:
            self._schedule_sweep()
        if tls is not None:
            door = Door(self, tls, make, takes_plain=takes_plain)
            found = await door.open(bind, reuse_port=self.reuse_port, given=self.given.get(bind))
            self._doors.append(door)
            if tls not in self.tls:
                self.tls.append(tls)
            self.expects_newcomers()
            return found
        given = self.given.get(bind)
        if given is not None:
            listener = await self.loop.create_server(lambda: make(None), sock=given, backlog=BACKLOG)
        else:
            listener = await self.loop.create_server(
                lambda: make(None), *bind, backlog=BACKLOG, reuse_port=self.reuse_port or None
            )
        self._listeners.append(listener)
        address = listener.sockets[0].getsockname()
        return address[0], address[1]

    async def listen_on(self, make: Callable[[Arrival | None], Any], made: socket.socket) -> None:
        """Listen on a socket of the file system's, too. Raises OSError."""
        self._listeners.append(await self.loop.create_unix_server(lambda: make(None), sock=made, backlog=BACKLOG))

    def expects_newcomers(self) -> None:
        """There are clients that have to show who they are."""
        if self._newcomers_timer is None:
            self._expire_newcomers()

    def _expire_newcomers(self) -> None:
        self._newcomers_timer = self.loop.call_later(NEWCOMERS_S, self._expire_newcomers)
        self.newcomers.expire()

    async def stop(self) -> None:
        """Accept no more, let the answers out, close. Takes STOP_MS at most."""
        for timer in (self._timer, self._newcomers_timer):
            if timer is not None:
                timer.cancel()
        for listener in self._listeners:
            listener.close()
        for door in self._doors:
            door.close()
        self._all_closed = self.loop.create_future()
        for connection in list(self._connections):
            connection.finish()
        if self._connections:
            await asyncio.wait([self._all_closed], timeout=STOP_MS / 1000)
        for connection in list(self._connections):
            connection.abort("the server stops")
        for listener in self._listeners:
            await listener.wait_closed()

    def shut(self, reason: str) -> None:
        """Close all connections, and let nobody in until `open_again`."""
        self._is_shut = True
        for connection in list(self._connections):
            connection.abort(reason)

    def open_again(self) -> None:
        self._is_shut = False

    def cut(self, client: str | None = None) -> int:
        """Close the connections of this client, or all, as a network does that fails. How many they were."""
        found = [each for each in self._connections if client is None or each.client == client]
        for connection in found:
            connection.abort("it was cut")
        return len(found)

    @property
    def _limits(self) -> LimitSettings:
        """As they are now: some can be changed while the broker runs."""
        return self.core.settings.limits

    def mono_ms(self) -> int:
        return self.clock.mono_ms()

    def wait_ms(self, host: str) -> int:
        """How long an address has to wait, because its connections come too fast; 0: it has not."""
        return 0

    def admit(self, accepted: Accepted, instead_of: Accepted | None = None) -> bool:
        """Take a new connection in, unless there are too many; or in the place of one that is counted already."""
        if instead_of is not None:
            self._connections.pop(instead_of, None)
            self._connections[accepted] = None
            return True
        if self._is_shut:
            return self._refuse(accepted.peer_host, "shut")
        limits, fit = self._limits, self.most_connections
        most = limits.max_connections
        host = accepted.peer_host
        if len(self._connections) >= (most if fit is None else min(fit, most)):
            return self._refuse(host, "file_descriptors" if fit is not None and fit < most else "max_connections")
        of_host = limits.max_connections_per_ip
        if of_host is not None and self._hosts[host] >= of_host:
            return self._refuse(host, "max_connections_per_ip")
        self._connections[accepted] = None
        self._hosts[host] += 1
        self.counters.accepted += 1
        self.counters.connections = len(self._connections)
        return True

    def _refuse(self, host: str, reason: str) -> bool:
        self.counters.refused += 1
        if not self._refusals_logged:
            self._refusals_logged = True
            self.log.warning("event=connection_refused peer=%s reason=%s", host, reason)
        return False

    def log_end(self, peer: str, client: str, reason: str) -> None:
        """A connection is closed for something that its client did, or did not. Whoever comes again and again does not
        fill the log."""
        self._ends += 1
        if self._ends <= ENDS_LOGGED:
            self.log.warning("event=connection_closed peer=%s client=%s reason=%s", peer, client, reason)

    def shown_no_certificate(self, listener: str, host: str, reason: str) -> None:
        """A client was asked for a certificate, and has shown none that counts."""
        if self.audit is not None:
            self.audit.login_failed(Who(listener, host, str(ANONYMOUS), TLS), host, reason)

    def leave(self, accepted: Accepted) -> None:
        if accepted not in self._connections:
            return
        self._connections.pop(accepted, None)
        host = accepted.peer_host
        self._hosts[host] -= 1
        if not self._hosts[host]:
            del self._hosts[host]
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
            if self._ends > ENDS_LOGGED:
                self.log.warning("event=connections_closed not_logged=%d", self._ends - ENDS_LOGGED)
            self._ends = 0
        finally:
            self._schedule_sweep()
