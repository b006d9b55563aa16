"""A few Kafka requests over plain sockets: a client that costs so little that the broker is what is measured.

Old, fixed versions that every broker takes: Metadata 8, Produce 7, Fetch 11, OffsetCommit 2.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from collections import deque
from typing import Any, NamedTuple, cast

from halfmoon.core.records.batches import build_batch

CONSUMER_WAIT_MS = 500
"""How long a consumer's fetch waits by default (`fetch.max.wait.ms`)."""
BATCH_HEADER = struct.Struct(">qi")
_SIZE = struct.Struct(">i")


class Fetched(NamedTuple):
    error: int
    high_watermark: int
    records: memoryview


def address(bootstrap: str) -> tuple[str, int]:
    host, _, port = bootstrap.rpartition(":")
    return host, int(port)


def _string(text: str) -> bytes:
    return struct.pack(">h", len(text)) + text.encode()


def _request(key: int, version: int, body: bytes) -> bytes:
    head = struct.pack(">hhi", key, version, 0) + _string("bench")
    return _SIZE.pack(len(head) + len(body)) + head + body


def metadata(topics: list[str]) -> bytes:
    return _request(3, 8, struct.pack(">i", len(topics)) + b"".join(map(_string, topics)) + b"\0\0\0")


def brokers_in(answer: bytes) -> int:
    """How many brokers a Metadata answer names."""
    return int(struct.unpack_from(">i", answer, 8)[0])


def batch(value: bytes, records: int = 1) -> bytes:
    """A batch of equal records; the time is not looked at by anyone here."""
    return build_batch([(None, value, 1_700_000_000_000, ())] * records)


def produce(topic: str, batches: list[tuple[int, bytes]], acks: int = 1) -> bytes:
    """A request with one batch for each (partition, batch)."""
    parts = b"".join(struct.pack(">ii", partition, len(data)) + data for partition, data in batches)
    head = struct.pack(">hhii", -1, acks, 30_000, 1) + _string(topic) + struct.pack(">i", len(batches))
    return _request(0, 7, head + parts)


def produced(answer: bytes) -> tuple[int, int]:
    """(error, base offset) of the first partition in a Produce answer."""
    (name_size,) = struct.unpack_from(">h", answer, 8)
    error, base_offset = struct.unpack_from(">hq", answer, 10 + name_size + 8)
    return int(error), int(base_offset)


def fetch(
    topic: str, partition: int, offset: int, *, max_wait_ms: int = CONSUMER_WAIT_MS, max_bytes: int = 1 << 20
) -> bytes:
    head = struct.pack(">iiiibii", -1, max_wait_ms, 1, 50 << 20, 0, 0, -1) + struct.pack(">i", 1) + _string(topic)
    part = struct.pack(">iiiqqi", 1, partition, -1, offset, -1, max_bytes)
    return _request(1, 11, head + part + struct.pack(">i", 0) + _string(""))


def fetched(answer: bytes) -> Fetched:
    """The one partition of a Fetch answer; all zeroes where the broker names none."""
    view = memoryview(answer)
    (topics,) = struct.unpack_from(">i", view, 14)
    if not topics:
        return Fetched(0, 0, view[:0])
    (name_size,) = struct.unpack_from(">h", view, 18)
    at = 20 + name_size + 4
    _index, error, high_watermark, _stable, _start, aborted = struct.unpack_from(">ihqqqi", view, at)
    at += 34 + 16 * max(aborted, 0) + 4
    (size,) = struct.unpack_from(">i", view, at)
    return Fetched(error, high_watermark, view[at + 4 : at + 4 + max(size, 0)])


def batches_in(records: memoryview) -> list[tuple[int, memoryview]]:
    """(base offset, the whole batch) for each batch that is there in full."""
    found = []
    at = 0
    while at + BATCH_HEADER.size <= len(records):
        base_offset, length = BATCH_HEADER.unpack_from(records, at)
        end = at + BATCH_HEADER.size + length
        if end > len(records):
            break
        found.append((base_offset, records[at:end]))
        at = end
    return found


def offset_commit(group: str, topic: str, offset: int) -> bytes:
    """Of partition 0, by nobody who is a member of the group."""
    head = _string(group) + struct.pack(">i", -1) + _string("") + struct.pack(">qi", -1, 1) + _string(topic)
    return _request(8, 2, head + struct.pack(">iiq", 1, 0, offset) + _string(""))


class Connection:
    """A blocking connection."""

    def __init__(self, bootstrap: str) -> None:
        self._socket = socket.create_connection(address(bootstrap), timeout=60)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._reader = self._socket.makefile("rb")

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *_: object) -> None:
        self._reader.close()
        self._socket.close()

    def send(self, request: bytes) -> None:
        self._socket.sendall(request)

    def receive(self) -> bytes:
        head = self._reader.read(4)
        if len(head) < 4:
            raise ConnectionError("the broker closed the connection")
        return self._reader.read(_SIZE.unpack(head)[0])

    def ask(self, request: bytes) -> bytes:
        self.send(request)
        return self.receive()


class Asking(asyncio.Protocol):
    """A connection on an event loop; answers come in the order of the requests."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._waiting: deque[asyncio.Future[bytes]] = deque()
        self._transport: asyncio.Transport

    @classmethod
    async def open(cls, bootstrap: str) -> Asking:
        _, protocol = await asyncio.get_running_loop().create_connection(cls, *address(bootstrap))
        return protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        cast(Any, transport.get_extra_info("socket")).setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def data_received(self, data: bytes) -> None:
        buffer = self._buffer
        buffer += data
        while len(buffer) >= 4:
            end = 4 + _SIZE.unpack_from(buffer)[0]
            if len(buffer) < end:
                return
            answer = bytes(memoryview(buffer)[4:end])
            del buffer[:end]
            waiting = self._waiting.popleft()
            if not waiting.done():
                waiting.set_result(answer)

    def connection_lost(self, exc: Exception | None) -> None:
        for waiting in self._waiting:
            if not waiting.done():
                waiting.set_exception(exc or ConnectionError("the broker closed the connection"))

    def ask(self, request: bytes) -> asyncio.Future[bytes]:
        future: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._waiting.append(future)
        self._transport.write(request)
        return future

    def close(self) -> None:
        self._transport.close()
