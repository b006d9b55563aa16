"""The least that a broker in Python has to do, to compare with: `python -m benchmarks.bare_loop FILE`.

A uvloop server receives Produce requests, checks each batch's CRC-32C, writes what came together with a header of a
frame's size into an allocated file, from its begin again where it ends, and answers. It fetches from that file, mapped.
It keeps of each partition where it ends and the last batches, no index and no producers, never syncs, and lets nobody
wait for anybody. What a client reaches here is what it can reach at all: a broker that is as quick is bound by its
client.

It takes what benchmarks.clients.wire, librdkafka's and Kafka's Java producers and a consumer without a group send.
Printed: `ready HOST:PORT`.
"""

from __future__ import annotations

import asyncio
import mmap
import os
import struct
import sys
from collections import deque
from typing import Any, cast

import uvloop
from crc32c import crc32c

from halfmoon.core.storage.frame import HEADER_BYTES
from halfmoon.kafka_wire.messages import REQUESTS, RESPONSES

FILE_BYTES = 256 << 20
CHUNK_BYTES = 2 << 20
MOST_WRITES = 1_000
"""In one pwritev: the kernel takes 1,024."""
KEPT_BATCHES = 64
"""Of each partition. A fetch before the oldest of them gets that one, with the offset that it asked for."""
PRODUCE, FETCH, LIST_OFFSETS, METADATA, API_VERSIONS, CREATE_TOPICS = 0, 1, 2, 3, 18, 19
VERSIONS = {PRODUCE: (3, 7), FETCH: (4, 11), LIST_OFFSETS: (1, 5), METADATA: (0, 8), API_VERSIONS: (0, 4),
            CREATE_TOPICS: (0, 4)}  # fmt: skip
_SIZE = struct.Struct(">i")
_HEAD = struct.Struct(">ii")
_REQUEST = struct.Struct(">hhih")
_PRODUCED = struct.Struct(">ihqqq")
_FETCH = struct.Struct(">iiiibii")
_FETCH_PART = struct.Struct(">iiqqi")
_FETCHED = struct.Struct(">ihqqqiii")
_OFFSET = struct.Struct(">q")


class Partition:
    def __init__(self) -> None:
        self.end = 0
        """The next offset."""
        self.kept: deque[tuple[int, int, int, int]] = deque(maxlen=KEPT_BATCHES)
        """Base offset, end offset, where it is in the file, bytes."""
        self.waiting: list[Waiting] = []

    def read(self, file: memoryview, offset: int, most: int) -> list[bytes | memoryview]:
        """Batches from this offset on: at least one, where there is one."""
        found: list[bytes | memoryview] = []
        kept = self.kept
        if not kept or offset >= self.end:
            return found
        while most > 0 and offset < self.end:
            base, end, at, size = kept[0]
            if offset >= base:
                base, end, at, size = next(batch for batch in reversed(kept) if batch[0] <= offset)
                found.append(file[at : at + size])
            else:  # it is kept no more
                end = offset + end - base
                found += [_OFFSET.pack(offset), file[at + 8 : at + size]]
            most -= size
            offset = end
        return found


class Waiting:
    """A Fetch of one connection that found nothing."""

    def __init__(self, connection: Bare, correlation: int, request: bytes) -> None:
        self.connection = connection
        self.correlation = correlation
        self.request = request
        self.partitions: list[Partition] = []
        self.timer: asyncio.TimerHandle | None = None


class Server:
    """What all connections share."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self.at = 0
        self.file = memoryview(mmap.mmap(fd, FILE_BYTES, prot=mmap.PROT_READ))
        self.topics: dict[bytes, list[Partition]] = {}
        self.address = ("127.0.0.1", 0)

    def topic(self, name: bytes, partitions: int = 1) -> list[Partition]:
        found = self.topics.get(name)
        if found is None:
            found = self.topics[name] = [Partition() for _ in range(partitions)]
        return found


class Bare(asyncio.BufferedProtocol):
    def __init__(self, server: Server) -> None:
        self._server = server
        self._chunk = memoryview(bytearray(CHUNK_BYTES))
        self._held = 0
        self._header = bytes(HEADER_BYTES)
        self._waiting: Waiting | None = None
        """Its answer comes before those of later requests."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._chunk[self._held :]

    def buffer_updated(self, nbytes: int) -> None:
        chunk, end, at = self._chunk, self._held + nbytes, 0
        writes: list[bytes | memoryview] = []
        answers: list[bytes | memoryview] = []
        woken: list[Waiting] = []
        while end - at >= 4:
            (size,) = _SIZE.unpack_from(chunk, at)
            if end - at - 4 < size:
                if size + 4 > len(chunk):
                    self._chunk = memoryview(bytearray(2 * (size + 4)))
                break
            self._request(chunk[at + 4 : at + 4 + size], writes, answers, woken)
            at += 4 + size
        if writes:
            os.pwritev(self._server.fd, writes, self._written_at)
        if answers:
            self._transport.write(b"".join(answers))
        for waiting in woken:
            waiting.connection.wake(waiting)
        self._chunk[: end - at] = bytes(chunk[at:end])
        self._held = end - at

    def _request(
        self,
        request: memoryview,
        writes: list[bytes | memoryview],
        answers: list[bytes | memoryview],
        woken: list[Waiting],
    ) -> None:
        if self._waiting is not None:
            answers += self._end(self._waiting)
        api, version, correlation, client = _REQUEST.unpack_from(request)
        at = 10 + max(client, 0)
        if api == PRODUCE:
            body = self._produce(request, at, writes, woken)
            answers += [_HEAD.pack(4 + len(body), correlation), body]
        elif api == FETCH:
            found = self._fetch(request[at:])
            if found is None:
                self._wait(correlation, bytes(request[at:]))
            else:
                answers += [_HEAD.pack(4 + sum(map(len, found)), correlation), *found]
        else:
            body = self._control(api, version, request[at:])
            answers += [_HEAD.pack(4 + len(body), correlation), body]

    def _produce(self, request: memoryview, at: int, writes: list[bytes | memoryview], woken: list[Waiting]) -> bytes:
        server = self._server
        at += 2 + 2 + 4  # no transactional id, acks, timeout
        topics = _SIZE.unpack_from(request, at)[0]
        answer = [request[at : at + 4]]
        at += 4
        for _ in range(topics):
            begun = at
            at += 2 + int.from_bytes(request[at : at + 2], "big")
            partitions = server.topic(bytes(request[begun + 2 : at]))
            count = _SIZE.unpack_from(request, at)[0]
            at += 4
            answer.append(request[begun:at])
            for _ in range(count):
                index, size = _HEAD.unpack_from(request, at)
                at += 8
                records = request[at : at + size]
                at += size
                assert crc32c(records[21:]) == int.from_bytes(records[17:21], "big")
                partition = partitions[index]
                base = partition.end
                partition.end = base + int.from_bytes(records[23:27], "big") + 1
                place = self._place(writes, HEADER_BYTES + size)
                partition.kept.append((base, partition.end, place + HEADER_BYTES, size))
                writes += [self._header + _OFFSET.pack(base), records[8:]]
                answer.append(memoryview(_PRODUCED.pack(index, 0, base, -1, 0)))
                if partition.waiting:
                    woken += partition.waiting
                    partition.waiting = []
        return b"".join([*answer, b"\0\0\0\0"])

    def _place(self, writes: list[bytes | memoryview], size: int) -> int:
        """Where so many bytes go. What is to be written is written before the file begins anew, or where it is much."""
        server = self._server
        ends = server.at + size > FILE_BYTES
        if writes and (ends or len(writes) >= MOST_WRITES):
            os.pwritev(server.fd, writes, self._written_at)
            writes.clear()
        if ends:
            server.at = 0
        if not writes:
            self._written_at = server.at
        place = server.at
        server.at += size
        return place

    def _fetch(self, body: memoryview, *, wait: bool = True) -> list[bytes | memoryview] | None:
        """The answer; None where there is nothing, and it may wait."""
        _, max_wait_ms, _, _, _, _, _ = _FETCH.unpack_from(body)
        at = _FETCH.size
        topics = _SIZE.unpack_from(body, at)[0]
        found: list[bytes | memoryview] = [struct.pack(">ihi", 0, 0, 0), body[at : at + 4]]
        at += 4
        nothing = True
        for _ in range(topics):
            begun = at
            at += 2 + int.from_bytes(body[at : at + 2], "big")
            partitions = self._server.topic(bytes(body[begun + 2 : at]))
            count = _SIZE.unpack_from(body, at)[0]
            at += 4
            found.append(body[begun:at])
            for _ in range(count):
                index, _, offset, _, most = _FETCH_PART.unpack_from(body, at)
                at += _FETCH_PART.size
                partition = partitions[index]
                records = partition.read(self._server.file, offset, most)
                nothing &= not records
                size = sum(map(len, records))
                found += [_FETCHED.pack(index, 0, partition.end, partition.end, 0, -1, -1, size), *records]
        return None if nothing and wait and max_wait_ms and topics else found

    def _wait(self, correlation: int, body: bytes) -> None:
        waiting = self._waiting = Waiting(self, correlation, body)
        view = memoryview(body)
        max_wait_ms = _FETCH.unpack_from(view)[1]
        waiting.timer = asyncio.get_running_loop().call_later(max_wait_ms / 1e3, self.wake, waiting)
        at = _FETCH.size
        topics = _SIZE.unpack_from(view, at)[0]
        at += 4
        for _ in range(topics):
            end = at + 2 + int.from_bytes(view[at : at + 2], "big")
            partitions = self._server.topic(bytes(view[at + 2 : end]))
            count = _SIZE.unpack_from(view, end)[0]
            at = end + 4
            for _ in range(count):
                partition = partitions[_SIZE.unpack_from(view, at)[0]]
                partition.waiting.append(waiting)
                waiting.partitions.append(partition)
                at += _FETCH_PART.size

    def wake(self, waiting: Waiting) -> None:
        """Answer a Fetch that waited; once, however many of its partitions wake it."""
        if waiting.timer is not None and not self._transport.is_closing():
            self._transport.write(b"".join(self._end(waiting)))

    def _end(self, waiting: Waiting) -> list[bytes | memoryview]:
        """The answer of a Fetch that waits."""
        assert waiting.timer is not None
        waiting.timer.cancel()
        waiting.timer = self._waiting = None
        for partition in waiting.partitions:
            if waiting in partition.waiting:
                partition.waiting.remove(waiting)
        found = self._fetch(memoryview(waiting.request), wait=False)
        assert found is not None
        return [_HEAD.pack(4 + sum(map(len, found)), waiting.correlation), *found]

    def _control(self, api: int, version: int, body: memoryview) -> bytes:
        response = RESPONSES[api]
        if api == API_VERSIONS:
            keys = [
                response.ApiVersion(api_key=key, min_version=first, max_version=last)
                for key, (first, last) in VERSIONS.items()
            ]
            return _encoded(response(error_code=0, api_keys=keys, throttle_time_ms=0), version)
        assert not REQUESTS[api].api.is_flexible(version), (api, version)
        asked = REQUESTS[api].decode(body, version)
        if api == METADATA:
            return _encoded(self._metadata(asked), version)
        if api == LIST_OFFSETS:
            return _encoded(self._offsets(asked), version)
        assert api == CREATE_TOPICS, api
        for topic in asked.topics:
            self._server.topic(topic.name.encode(), max(topic.num_partitions, 1))
        made = [response.CreatableTopicResult(name=one.name, error_code=0, error_message=None) for one in asked.topics]
        return _encoded(response(throttle_time_ms=0, topics=made), version)

    def _metadata(self, asked: Any) -> Any:
        response, server = RESPONSES[METADATA], self._server
        names = list(server.topics) if asked.topics is None else [topic.name.encode() for topic in asked.topics]
        topics = [
            response.MetadataResponseTopic(
                error_code=0, name=name.decode(), is_internal=False,
                partitions=[
                    response.MetadataResponseTopic.MetadataResponsePartition(
                        error_code=0, partition_index=index, leader_id=0, leader_epoch=0, replica_nodes=[0],
                        isr_nodes=[0], offline_replicas=[],
                    )
                    for index in range(len(server.topic(name)))
                ],
            )
            for name in names
        ]  # fmt: skip
        host, port = server.address
        node = response.MetadataResponseBroker(node_id=0, host=host, port=port, rack=None)
        return response(throttle_time_ms=0, brokers=[node], cluster_id="bare", controller_id=0, topics=topics)

    def _offsets(self, asked: Any) -> Any:
        """The earliest is 0; of a time nothing is known."""
        response = RESPONSES[LIST_OFFSETS]
        topics = [
            response.ListOffsetsTopicResponse(
                name=topic.name,
                partitions=[
                    response.ListOffsetsTopicResponse.ListOffsetsPartitionResponse(
                        partition_index=one.partition_index, error_code=0, timestamp=-1, leader_epoch=0,
                        offset=self._server.topic(topic.name.encode())[one.partition_index].end
                        if one.timestamp == -1 else 0,
                    )
                    for one in topic.partitions
                ],
            )
            for topic in asked.topics
        ]  # fmt: skip
        return response(throttle_time_ms=0, topics=topics)


def _encoded(answer: Any, version: int) -> bytes:
    return bytes(answer.encode(version))


async def main(path: str) -> None:
    fd = os.open(path, os.O_RDWR | os.O_CREAT)
    os.posix_fallocate(fd, 0, FILE_BYTES)
    shared = Server(fd)
    server = await asyncio.get_running_loop().create_server(lambda: Bare(shared), "127.0.0.1", 0)
    shared.address = server.sockets[0].getsockname()
    print(f"ready {shared.address[0]}:{shared.address[1]}", flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(main(sys.argv[1]))
