"""The least that a broker in Python has to do for a Produce, to compare with: `python -m benchmarks.bare_loop FILE`.

A uvloop server receives requests of benchmarks.clients.wire, checks each batch's CRC-32C, writes what came together
with a header of a frame's size into an allocated file, from its begin again where it ends, and answers. It keeps no
offset, no index and no producer, and never syncs. Printed: `ready HOST:PORT`.
"""

from __future__ import annotations

import asyncio
import os
import struct
import sys

import uvloop
from crc32c import crc32c

from halfmoon.core.storage.frame import HEADER_BYTES

FILE_BYTES = 256 << 20
CHUNK_BYTES = 2 << 20
_SIZE = struct.Struct(">i")
_ANSWER = struct.Struct(">ii")


class Bare(asyncio.BufferedProtocol):
    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._at = 0
        self._chunk = memoryview(bytearray(CHUNK_BYTES))
        self._held = 0
        self._header = bytes(HEADER_BYTES)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._chunk[self._held :]

    def buffer_updated(self, nbytes: int) -> None:
        chunk, end, at = self._chunk, self._held + nbytes, 0
        writes: list[bytes | memoryview] = []
        answers: list[bytes] = []
        while end - at >= 4:
            (size,) = _SIZE.unpack_from(chunk, at)
            if end - at - 4 < size:
                break
            answers.append(self._produce(chunk[at + 4 : at + 4 + size], writes))
            at += 4 + size
        if writes:
            self._at = 0 if self._at > FILE_BYTES // 2 else self._at
            self._at += os.pwritev(self._fd, writes, self._at)
            self._transport.write(b"".join(answers))  # type: ignore[attr-defined]
        chunk[: end - at] = bytes(chunk[at:end])
        self._held = end - at

    def _produce(self, request: memoryview, writes: list[bytes | memoryview]) -> bytes:
        client = int.from_bytes(request[8:10], "big")
        topic_at = 10 + client + 2 + 2 + 4 + 4
        name_bytes = int.from_bytes(request[topic_at : topic_at + 2], "big")
        part_at = topic_at + 2 + name_bytes + 4
        records = request[part_at + 8 :]
        assert crc32c(records[21:]) == int.from_bytes(records[17:21], "big")
        writes += [self._header, records]
        body = request[topic_at - 4 : part_at + 4].tobytes() + struct.pack(">hqqqi", 0, 0, -1, 0, 0)
        return _ANSWER.pack(4 + len(body), int.from_bytes(request[4:8], "big")) + body


async def main(path: str) -> None:
    fd = os.open(path, os.O_RDWR | os.O_CREAT)
    os.posix_fallocate(fd, 0, FILE_BYTES)
    server = await asyncio.get_running_loop().create_server(lambda: Bare(fd), "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    print(f"ready {host}:{port}", flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(main(sys.argv[1]))
