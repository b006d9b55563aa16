"""The door of a listener with TLS: an accept loop of its own.

With asyncio's (`create_server(ssl=…)`) a connection is told to nobody before its handshake is over: until then it has a
descriptor and 40 KiB that no limit sees, for as long as the client likes. Here it counts from `accept` on:

    accept → admitted (limits) → its first byte is looked at → handshake → connection_made

It is an `Arrival` until then. The first byte says whether it is TLS; what is silent has no buffers. A handshake takes
half a millisecond of the loop, so few begin in a round.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import ssl
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

from halfmoon.adapters.tcp.newcomers import Newcomers
from halfmoon.adapters.tcp.tls import HANDSHAKE, SOCKET, Tls

BACKLOG = 1024
ACCEPTED_AT_ONCE = 64
"""In one turn of the loop."""
HANDSHAKES_AT_ONCE = 4
"""Begun in one round of the loop: two milliseconds."""
REST_S = 1.0
"""Nothing is accepted for so long where there are no descriptors or no memory."""

_NO_CERTIFICATE = ("CERTIFICATE_VERIFY_FAILED", "PEER_DID_NOT_RETURN_A_CERTIFICATE")
"""OpenSSL's reasons where a client was to show a certificate."""
_EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)

Make = Callable[["Arrival"], Any]
"""Makes the protocol of a connection, which tells the gate that it has taken the arrival's place. It has the methods of
asyncio.BufferedProtocol, which uvloop asks for; compiled classes can have no base that is not."""


class Gate(Protocol):
    """Who decides which connections there are."""

    loop: asyncio.AbstractEventLoop
    log: logging.Logger
    newcomers: Newcomers

    def admit(self, arrival: Arrival) -> bool:
        """Whether there is room for it."""
        ...

    def wait_ms(self, host: str) -> int:
        """How long an address has to wait, because its connections come too fast."""
        ...

    def leave(self, arrival: Arrival) -> None: ...

    def log_end(self, peer: str, client: str, reason: str) -> None:
        """It is closed for something that its client did, or did not."""
        ...

    def shown_no_certificate(self, listener: str, host: str, reason: str) -> None:
        """A client was asked for a certificate, and has shown none that counts."""
        ...


class Door:
    """Create, open and close it in the loop's thread."""

    def __init__(self, gate: Gate, tls: Tls, make: Make, *, takes_plain: bool = False) -> None:
        """`takes_plain`: also clients without TLS."""
        self._gate = gate
        self.tls = tls
        self._make = make
        self._takes_plain = takes_plain
        self._sockets: list[socket.socket] = []
        self._ready: deque[tuple[Arrival, bool]] = deque()
        """Whose first byte is there, and whether it is TLS."""
        self._begins = False

    async def open(
        self, bind: tuple[str, int], *, reuse_port: bool = False, given: socket.socket | None = None
    ) -> tuple[str, int]:
        """Listen; returns the address, with the port that was chosen if `bind`'s is 0. `given`: a socket that listens
        there already. Raises OSError."""
        loop = self._gate.loop
        if given is not None:
            given.setblocking(False)
            self._sockets.append(given)
        infos = (
            [] if given is not None else await loop.getaddrinfo(*bind, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        )
        try:
            for family, kind, protocol, _, address in dict.fromkeys(infos):
                listening = socket.socket(family, kind, protocol)
                self._sockets.append(listening)
                listening.setblocking(False)
                listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                if reuse_port:
                    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
                if family == socket.AF_INET6:
                    listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                listening.bind(address)
                listening.listen(BACKLOG)
        except OSError:
            self.close()
            raise
        for listening in self._sockets:
            loop.add_reader(listening, self._acceptable, listening)
        found = self._sockets[0].getsockname()
        return found[0], found[1]

    def close(self) -> None:
        """Accept no more."""
        for listening in self._sockets:
            self._gate.loop.remove_reader(listening)
            listening.close()
        self._sockets = []

    def _acceptable(self, listening: socket.socket) -> None:
        for _ in range(ACCEPTED_AT_ONCE):
            try:
                accepted, peer = listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno not in _EXHAUSTED:
                    raise
                self._gate.log.error("event=accept_failed error=%s", error.strerror)
                self._gate.loop.remove_reader(listening)
                self._gate.loop.call_later(REST_S, self._listen_again, listening)
                return
            accepted.setblocking(False)
            Arrival(self._gate, accepted, peer[0], self).begin()

    def _listen_again(self, listening: socket.socket) -> None:
        if listening in self._sockets:
            self._gate.loop.add_reader(listening, self._acceptable, listening)

    def ready(self, arrival: Arrival, first: int) -> None:
        """Its first byte is there."""
        encrypted = first == HANDSHAKE
        if not encrypted and not self._takes_plain:
            self.tls.handshakes["failed"] += 1
            arrival.abort(f"this port takes TLS only, and the first byte is {first:#04x}")
            return
        self._ready.append((arrival, encrypted))
        if not self._begins:
            self._begins = True
            self._gate.loop.call_soon(self._begin_some)

    def _begin_some(self) -> None:
        ready = self._ready
        for _ in range(min(HANDSHAKES_AT_ONCE, len(ready))):
            arrival, encrypted = ready.popleft()
            if not arrival.is_gone:
                arrival.task = self._gate.loop.create_task(self._connect(arrival, self.tls if encrypted else None))
        self._begins = bool(ready)
        if self._begins:
            self._gate.loop.call_soon(self._begin_some)

    async def _connect(self, arrival: Arrival, tls: Tls | None) -> None:
        """Hand the socket to the loop; once the handshake is over, the arrival's connection is there."""
        gate = self._gate
        if tls is None:
            try:
                await gate.loop.connect_accepted_socket(lambda: self._make(arrival), arrival.socket)
            except OSError as error:
                arrival.abort(f"it cannot be read from: {error}")
            return
        arrival.is_handed = True
        SOCKET.set(arrival.socket)
        try:
            await gate.loop.connect_accepted_socket(
                lambda: self._make(arrival),
                arrival.socket,
                ssl=tls.current,
                ssl_handshake_timeout=gate.newcomers.timeout_ms / 1000,
            )
        except (OSError, asyncio.CancelledError) as error:
            late = arrival.is_gone or isinstance(error, TimeoutError | ConnectionAbortedError)
            tls.handshakes["timeout" if late else "failed"] += 1
            reason = error.reason if isinstance(error, ssl.SSLError) and error.reason else str(error)
            if reason in _NO_CERTIFICATE and not arrival.is_gone:
                gate.shown_no_certificate(tls.name, arrival.peer_host, reason.lower().replace("_", " "))
            arrival.abort(f"the TLS handshake failed: {reason.lower().replace('_', ' ')}")
        else:
            tls.handshakes["ok"] += 1


class Arrival:
    """An accepted connection that is no connection of the protocol's yet (listener.Accepted)."""

    def __init__(self, gate: Gate, accepted: socket.socket, host: str, door: Door) -> None:
        self._gate = gate
        self._door = door
        self.socket = accepted
        self.peer_host = plain_host(host)
        self.client = ""
        self.is_gone = False
        """Closed, or a connection of the protocol's now."""
        self.task: asyncio.Task[None] | None = None
        """While its handshake runs."""
        self.is_handed = False
        """The loop has the socket for a handshake, and closes it, however that ends."""
        self._waits = False
        """For its first byte."""

    def begin(self) -> None:
        gate = self._gate
        if not gate.admit(self):
            self.is_gone = True
            self.socket.close()
            return
        wait_ms = gate.wait_ms(self.peer_host)
        if wait_ms:  # it is not read from, and closed after a while; so it is not soon tried again
            gate.loop.call_later(wait_ms / 1000, self._end)
            return
        gate.newcomers.add(self)
        self._wait()

    def _wait(self) -> None:
        self._waits = True
        self._gate.loop.add_reader(self.socket, self._first_byte)

    def _stop_waiting(self) -> None:
        if self._waits:
            self._waits = False
            self._gate.loop.remove_reader(self.socket)

    def _first_byte(self) -> None:
        self._stop_waiting()
        try:
            first = self.socket.recv(1, socket.MSG_PEEK)
        except (BlockingIOError, InterruptedError):
            self._wait()
        except OSError:
            self._end()
        else:
            if first:
                self._door.ready(self, first[0])
            else:
                self._end()

    def became(self) -> int | None:
        """A connection takes its place; since when it is here (monotonic, ms)."""
        self.is_gone = True
        return self._gate.newcomers.remove(self)

    def _end(self) -> None:
        if self.is_gone:
            return
        self.is_gone = True
        self._stop_waiting()
        self._gate.newcomers.remove(self)
        self._gate.leave(self)
        if self.task is not None:
            self.task.cancel()
        if not self.is_handed:
            self.socket.close()

    def abort(self, reason: str) -> None:
        if not self.is_gone:
            self._gate.log_end(self.peer_host, "", reason)
            self._end()

    def finish(self) -> None:
        """The server stops."""
        self._end()

    def sweep(self, now_ms: int, idle_timeout_ms: int | None, send_timeout_ms: int) -> None:
        """The newcomers have a time of their own."""


def plain_host(host: str) -> str:
    """An IPv4 address as such, also where it reached a socket that speaks IPv6."""
    return host.removeprefix("::ffff:")
