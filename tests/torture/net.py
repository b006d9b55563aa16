"""A client's connection to whichever process listens now, over a network that takes its time and may break."""

from __future__ import annotations

import asyncio
import struct
from typing import Any

from tests.kafka_messages import read_answer, request_bytes
from tests.torture.loop import VirtualLoop
from tests.torture.process import Machine

TIMEOUT_S = 60.0
"""So long a client waits for an answer, beyond what it allows the broker to wait."""
RECONNECT_S = 0.05


class LostError(Exception):
    """The connection is gone, or was not there: what became of the request is not known."""


class _Transport:
    """The broker's end of the wire."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self.closed = False

    def get_extra_info(self, name: str) -> Any:
        return {"peername": ("10.0.0.9", 40_000), "sockname": ("10.0.0.1", 9092)}.get(name)

    def set_write_buffer_limits(self, high: int) -> None:
        pass

    def get_write_buffer_size(self) -> int:
        return 0

    def write(self, data: Any) -> None:
        self._link.to_client(bytes(data))

    def writelines(self, buffers: list[Any]) -> None:
        self._link.to_client(b"".join(buffers))

    def pause_reading(self) -> None:
        self._link.reading = False

    def resume_reading(self) -> None:
        self._link.reading = True
        self._link.feed_soon()

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True
        self._link.process.call_soon(self._link.closed_by_server)

    abort = close


class Link:
    """One TCP connection. What is on its way arrives in order, each piece some time later."""

    def __init__(self, machine: Machine, client: Client) -> None:
        assert machine.process is not None
        assert machine.process.loop.accepting is not None
        self.process = machine.process.loop
        self._loop = machine.loop
        self._client = client
        self.reading = True
        self.open = True
        self._incoming = b""
        self._arrives_s = self._returns_s = 0.0
        self.protocol: Any = machine.process.loop.accepting()
        self._transport = _Transport(self)
        self.protocol.connection_made(self._transport)

    def to_server(self, data: bytes) -> None:
        self._arrives_s = max(self._arrives_s, self._loop.time() + self._loop.some_s() / 8) + 1e-6
        self._loop.call_at(self._arrives_s, self._receive, data)

    def _receive(self, data: bytes) -> None:
        self._incoming += data
        self.feed_soon()

    def feed_soon(self) -> None:
        self.process.call_soon(self._feed)

    def _feed(self) -> None:
        """A read of the socket."""
        if self.open and self.reading and self._incoming and not self._transport.closed:
            buffer = self.protocol.get_buffer(-1)
            size = min(len(buffer), len(self._incoming))
            buffer[:size] = self._incoming[:size]
            self._incoming = self._incoming[size:]
            if self._incoming:
                self.feed_soon()
            self.protocol.buffer_updated(size)

    def to_client(self, data: bytes) -> None:
        self._returns_s = max(self._returns_s, self._loop.time() + self._loop.some_s() / 8) + 1e-6
        self._loop.call_at(self._returns_s, self._client.arrived, self, data)

    def closed_by_server(self) -> None:
        if self.open:
            self.open = False
            self.protocol.connection_lost(None)
            self._client.lost(self)

    def break_off(self) -> None:
        """The network is gone, for both."""
        if self.open:
            self.open = False
            if self.process.alive:
                self.process.call_soon(self.protocol.connection_lost, None)


class Client:
    """Asks the broker over one connection, which it makes anew when it is gone."""

    def __init__(self, machine: Machine, name: str) -> None:
        self.machine = machine
        self.name = name
        self._loop: VirtualLoop = machine.loop
        self._link: Link | None = None
        self._received = b""
        self._asked: dict[int, tuple[int, int, asyncio.Future[Any]]] = {}
        self._correlation_id = 0
        self.requests = 0

    async def connect(self) -> None:
        """Wait until there is a connection."""
        while self._link is None or not self._link.open or not self._link.process.alive:
            self.drop()
            process = self.machine.process
            if process is not None and process.loop.accepting is not None:
                self._link = Link(self.machine, self)
            else:
                await asyncio.sleep(RECONNECT_S)

    def begin(self, key: int, version: int, /, **fields: Any) -> asyncio.Future[Any]:
        """Send a request; the answer will be the future's result, or LostError."""
        future: asyncio.Future[Any] = self._loop.create_future()
        link = self._link
        if link is None or not link.open or not link.process.alive:
            future.set_exception(LostError())
            return future
        self._correlation_id += 1
        self._asked[self._correlation_id] = key, version, future
        self.requests += 1
        link.to_server(request_bytes(key, version, self._correlation_id, self.name, **fields))
        return future

    async def ask(self, key: int, version: int, /, **fields: Any) -> Any:
        """The answer. Raises LostError."""
        await self.connect()
        return await self.wait(self.begin(key, version, **fields))

    async def wait(self, future: asyncio.Future[Any]) -> Any:
        """Raises LostError; where the answer does not come the connection is given up."""
        try:
            return await asyncio.wait_for(future, TIMEOUT_S)
        except TimeoutError:
            self.drop()
            raise LostError from None

    def arrived(self, link: Link, data: bytes) -> None:
        if link is not self._link or not link.open:
            return
        self._received += data
        while len(self._received) >= 4:
            (size,) = struct.unpack_from(">i", self._received)
            if len(self._received) < 4 + size:
                break
            frame, self._received = self._received[4 : 4 + size], self._received[4 + size :]
            key, version, future = self._asked.pop(int.from_bytes(frame[:4], "big"))
            if not future.done():
                future.set_result(read_answer(key, version, frame))

    def lost(self, link: Link) -> None:
        if link is self._link:
            self.drop()

    def drop(self) -> None:
        """Give the connection up."""
        link, self._link = self._link, None
        if link is not None:
            link.break_off()
        self._received = b""
        asked, self._asked = self._asked, {}
        for _, _, future in asked.values():
            if not future.done():
                future.set_exception(LostError())
                future.exception()  # somebody may not wait for it any more
