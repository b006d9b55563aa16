"""Requests and their answers, over one connection to each node.

A connection is opened when it is first needed; what is asked meanwhile waits for it, as long as its own time-out
allows. After an attempt that failed, or a connection that ended at once, the next one is not made before a pause, which
grows; in it requests fail at once, so that a producer can go to another broker.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Mapping
from typing import Protocol

from halfmoon.client.engine.kernel import Kernel, Pending, Timer
from halfmoon.client.errors import ConnectionFailedError, NotRunningError, RequestTimeoutError
from halfmoon.remoting import command as wire
from halfmoon.remoting.command import Command
from halfmoon.remoting.errors import MalformedFrame

FIRST_PAUSE_MS = 100
LONGEST_PAUSE_MS = 10_000
CONNECT_TIMEOUT_MS = 3_000
"""NettyClientConfig.connectTimeoutMillis."""

log = logging.getLogger("halfmoon.client.network")


class Connection:
    """To one address. The shell may keep something of its own in `handle`."""

    __slots__ = (
        "_calls",
        "_needed",
        "_rest",
        "_unsent",
        "address",
        "handle",
        "heard_ms",
        "is_closed",
        "is_open",
        "timer",
    )

    def __init__(self, address: str) -> None:
        self.address = address
        """HOST:PORT."""
        self.is_open = False
        self.is_closed = False
        self.handle: object = None
        self.heard_ms = 0.0
        """When something has come over it last."""
        self.timer: Timer | None = None
        self._calls: dict[int, tuple[Pending[Command], Timer]] = {}
        self._unsent: list[bytes] = []
        """Frames that wait for the connection to open."""
        self._rest = bytearray()
        """A frame of which not all has come."""
        self._needed = 0
        """Bytes it takes, as far as is known."""

    def __repr__(self) -> str:
        return f"Connection({self.address!r})"

    @property
    def in_flight(self) -> int:
        """Requests without an answer yet."""
        return len(self._calls)


class _Peer:
    """What is remembered of an address when no connection to it is open."""

    __slots__ = ("failures", "not_before_ms")

    def __init__(self) -> None:
        self.failures = 0
        self.not_before_ms = 0.0


class Transport(Protocol):
    """What opens connections and carries bytes. Nothing here waits. What happens then is said to the network:
    `Network.connected`, `received`, `closed`."""

    def connect(self, connection: Connection) -> None:
        """Open a TCP connection to `connection.address`."""

    def write(self, connection: Connection, data: bytes) -> None:
        """Send all of it, behind what was written before."""

    def close(self, connection: Connection) -> None:
        """Close it once what was written is sent. `Network.closed` is not called."""


class Network:
    """The connections of one client."""

    def __init__(self, kernel: Kernel, transport: Transport, dice: random.Random | None = None) -> None:
        self._kernel = kernel
        self._transport = transport
        self._dice = dice or random.Random()
        self._connections: dict[str, Connection] = {}
        self._peers: dict[str, _Peer] = {}
        self._opaque = 0
        self._is_closed = False
        self.sign: Callable[[Mapping[str, str], bytes], Mapping[str, str]] | None = None
        """(fields, body) → the fields of a request that says who asks; None: none does."""
        self.on_request: Callable[[Connection, Command], None] = lambda connection, command: None
        """What a node asks."""
        self.on_lost: Callable[[str], None] = lambda address: None
        """A connection that was open has ended, and not because we wanted it."""

    # -- asking ------------------------------------------------------------------------------------------------------

    def request(
        self, address: str, code: int, fields: Mapping[str, str], body: bytes = b"", timeout_ms: float = 3_000
    ) -> Pending[Command]:
        """The answer, whatever its code. It fails with RequestTimeoutError, ConnectionFailedError or
        NotRunningError."""
        pending: Pending[Command] = Pending()
        connection = self._connection(address, pending)
        if connection is None:
            return pending
        self._opaque = opaque = self._opaque + 1 & 0x7FFFFFFF
        timer = self._kernel.call_after(timeout_ms, lambda: self._late(connection, opaque, code, timeout_ms))
        connection._calls[opaque] = pending, timer
        self._write(connection, wire.request(code, opaque, 0, self._signed(fields, body), body))
        return pending

    def oneway(self, address: str, code: int, fields: Mapping[str, str], body: bytes = b"") -> bool:
        """Nobody hears of it if it does not arrive. False: it was not sent, since there is no connection."""
        connection = self._connection(address, None)
        if connection is None:
            return False
        self._opaque = opaque = self._opaque + 1 & 0x7FFFFFFF
        self._write(connection, wire.request(code, opaque, wire.ONEWAY, self._signed(fields, body), body))
        return True

    def _signed(self, fields: Mapping[str, str], body: bytes) -> Mapping[str, str]:
        return fields if self.sign is None else self.sign(fields, body)

    def answer(
        self, connection: Connection, asked: Command, code: int, remark: str | None = None, body: bytes = b""
    ) -> None:
        """To what a node has asked."""
        if not asked.is_oneway and connection.is_open:
            head = wire.answer(asked.kind, code, asked.opaque, {}, remark, len(body))
            self._transport.write(connection, head + body)

    def _write(self, connection: Connection, frame: bytes) -> None:
        if connection.is_open:
            self._transport.write(connection, frame)
        else:
            connection._unsent.append(frame)

    def _connection(self, address: str, pending: Pending[Command] | None) -> Connection | None:
        """The connection, perhaps not open yet; None, with `pending` failed, where none is to be had now."""
        connection = self._connections.get(address)
        if connection is not None:
            return connection
        error: Exception | None = None
        if self._is_closed:
            error = NotRunningError("the client is closed")
        else:
            peer = self._peers.setdefault(address, _Peer())
            wait_ms = peer.not_before_ms - self._kernel.now_ms
            if wait_ms > 0:
                error = ConnectionFailedError(f"{address} cannot be reached; next attempt in {wait_ms / 1e3:.1f} s")
        if error is not None:
            if pending is not None:
                pending.fail(error)
            return None
        connection = self._connections[address] = Connection(address)
        made = connection
        connection.timer = self._kernel.call_after(CONNECT_TIMEOUT_MS, lambda: self._not_connected(made))
        self._transport.connect(connection)
        return self._connections.get(address, connection)

    def _not_connected(self, connection: Connection) -> None:
        if not connection.is_open and not connection.is_closed:
            self._transport.close(connection)
            self.closed(connection, f"no connection within {CONNECT_TIMEOUT_MS / 1e3:.0f} s")

    def _late(self, connection: Connection, opaque: int, code: int, timeout_ms: float) -> None:
        call = connection._calls.pop(opaque, None)
        if call is not None:
            where = connection.address if connection.is_open else f"{connection.address} (not connected yet)"
            call[0].fail(RequestTimeoutError(f"request {code} to {where}: no answer within {timeout_ms:.0f} ms"))

    def give_up_if_silent(self, address: str, since_ms: float) -> None:
        """Something was asked then, and not answered in time. Where nothing else has come either, the connection is one
        that only we believe in: it is closed, and the next request opens another."""
        connection = self._connections.get(address)
        if connection is not None and connection.is_open and connection.heard_ms <= since_ms:
            self._transport.close(connection)
            self.closed(connection, "nothing has come for a whole time-out")

    def wait_ms(self, address: str) -> float:
        """For how long no connection is attempted to an address; 0: at once."""
        peer = self._peers.get(address)
        return 0.0 if peer is None else max(0.0, peer.not_before_ms - self._kernel.now_ms)

    # -- what the shell says -----------------------------------------------------------------------------------------

    def connected(self, connection: Connection) -> None:
        if connection.is_closed:
            return
        connection.is_open = True
        connection.heard_ms = self._kernel.now_ms
        if connection.timer is not None:
            connection.timer.cancel()
        unsent, connection._unsent = connection._unsent, []
        if unsent:
            self._transport.write(connection, b"".join(unsent))

    def received(self, connection: Connection, data: bytes | memoryview) -> None:
        """Some bytes have come. Raises nothing: a connection with a malformed frame is closed."""
        connection.heard_ms = self._kernel.now_ms
        rest = connection._rest
        if rest:
            rest += data
            if len(rest) < connection._needed:
                return
            view = memoryview(bytes(rest))
            connection._rest = bytearray()
        else:
            view = memoryview(data)
        at, end = 0, len(view)
        try:
            while end - at >= 4:
                length = int.from_bytes(view[at : at + 4], "big", signed=True)
                if not 4 <= length <= wire.MAX_FRAME_BYTES:
                    raise MalformedFrame(f"a frame of {length} bytes")
                if end - at - 4 < length:
                    break
                command = wire.decode(view[at + 4 : at + 4 + length])
                at += 4 + length
                self._handle(connection, command)
                if connection.is_closed:
                    return
        except MalformedFrame as error:
            log.error("event=malformed_frame address=%s error=%s", connection.address, error)
            self._transport.close(connection)
            self.closed(connection, str(error))
            return
        if at < end:
            connection._rest = bytearray(view[at:])
            connection._needed = 4 if end - at < 4 else 4 + int.from_bytes(view[at : at + 4], "big")

    def _handle(self, connection: Connection, command: Command) -> None:
        if not command.is_response:
            self.on_request(connection, command)
            return
        peer = self._peers.get(connection.address)
        if peer is not None:
            peer.failures = 0
        call = connection._calls.pop(command.opaque, None)
        if call is not None:  # else it was too late
            call[1].cancel()
            call[0].set(command)

    def closed(self, connection: Connection, why: str) -> None:
        """The other side has closed it, or it could not be opened."""
        if connection.is_closed:
            return
        was_open, connection.is_open, connection.is_closed = connection.is_open, False, True
        if connection.timer is not None:
            connection.timer.cancel()
        if self._connections.get(connection.address) is connection:
            del self._connections[connection.address]
        peer = self._peers.setdefault(connection.address, _Peer())
        if peer.failures or not was_open:
            pause_ms = min(LONGEST_PAUSE_MS, FIRST_PAUSE_MS * 2 ** min(peer.failures, 10))
            peer.not_before_ms = self._kernel.now_ms + pause_ms * (0.8 + 0.4 * self._dice.random())
        peer.failures += 1
        log.log(
            logging.WARNING if was_open else logging.INFO, "event=%s address=%s why=%s",
            "connection_lost" if was_open else "connection_failed", connection.address, why,
        )  # fmt: skip
        calls, connection._calls = connection._calls, {}
        connection._unsent = []
        for pending, timer in calls.values():
            timer.cancel()
            pending.fail(ConnectionFailedError(f"{connection.address}: {why}"))
        if was_open and not self._is_closed:
            self.on_lost(connection.address)

    def close(self) -> None:
        """All connections, once what was written is sent. What is asked later fails."""
        self._is_closed = True
        for connection in list(self._connections.values()):
            connection.is_closed, connection.is_open = True, False
            if connection.timer is not None:
                connection.timer.cancel()
            self._transport.close(connection)
            for pending, timer in connection._calls.values():
                timer.cancel()
                pending.fail(NotRunningError("the client is closed"))
            connection._calls = {}
        self._connections.clear()

    @property
    def in_flight(self) -> int:
        """Requests that have no answer yet."""
        return sum(connection.in_flight for connection in self._connections.values())
