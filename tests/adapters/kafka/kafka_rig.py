"""The Kafka server without a network: a real broker on a disk in memory, virtual time, transports that are lists.

Bytes go into connections as a loop would hand them over, in pieces of any size; what a client would receive is parsed
by kafka-python's own classes.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from halfmoon.adapters.kafka.connection import Connection
from halfmoon.adapters.kafka.protocol import REQUESTS, RESPONSES
from halfmoon.adapters.kafka.server import Server
from halfmoon.core.broker import Broker
from halfmoon.core.catalog import Partition
from halfmoon.core.config import load_settings
from halfmoon.core.records import build_batch
from halfmoon.testing.faulty_files import FaultyFileSystem


class VirtualClock:
    def __init__(self) -> None:
        self.now_ms = 1_700_000_000_000

    def wall_ms(self) -> int:
        return self.now_ms

    def mono_ms(self) -> int:
        return self.now_ms


class FakeLoop:
    """Collects what is to be called soon; runs what is to be run in a thread when `run_threads` says so."""

    def __init__(self) -> None:
        self.soon: list[Callable[[], object]] = []
        self.threads: list[tuple[Callable[[], object], Future[object]]] = []

    def call_soon(self, callback: Callable[[], object]) -> None:
        self.soon.append(callback)

    def run_in_executor(self, executor: object, work: Callable[[], object]) -> Future[object]:
        future: Future[object] = Future()
        self.threads.append((work, future))
        return future

    def run(self) -> None:
        while self.soon:
            self.soon.pop(0)()

    def run_threads(self) -> None:
        while self.threads:
            work, future = self.threads.pop(0)
            try:
                result = work()
            except Exception as error:
                future.set_exception(error)
            else:
                future.set_result(result)


class FakeTransport:
    """Keeps what is written. `slow`: nothing is sent until `drain`."""

    def __init__(self) -> None:
        self.protocol: Any = None
        self.received = b""
        self.writes = 0
        self.unsent = b""
        self.slow = False
        self.reading = True
        self.closed = False
        self.high = 0

    def get_extra_info(self, name: str) -> tuple[str, int]:
        return {"peername": ("10.0.0.9", 40_000), "sockname": ("10.0.0.1", 9092)}[name]

    def set_write_buffer_limits(self, high: int) -> None:
        self.high = high

    def get_write_buffer_size(self) -> int:
        return len(self.unsent)

    def write(self, data: Any) -> None:
        self.writelines([data])

    def writelines(self, buffers: list[Any]) -> None:
        self.writes += 1
        self.unsent += b"".join(buffers)
        if self.slow:
            if len(self.unsent) > self.high:
                self.protocol.pause_writing()
        else:
            self.drain()

    def drain(self, nbytes: int | None = None) -> None:
        sent = self.unsent if nbytes is None else self.unsent[:nbytes]
        self.received += sent
        self.unsent = self.unsent[len(sent) :]
        if self.slow and not self.unsent:
            self.protocol.resume_writing()

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True

    abort = close


class RigClient:
    """One connection, seen from its client."""

    def __init__(self, rig: Rig) -> None:
        self.rig = rig
        self.transport = FakeTransport()
        self.connection = Connection(rig.server)
        self.transport.protocol = self.connection
        self.connection.connection_made(self.transport)  # type: ignore[arg-type]
        self._asked: dict[int, tuple[int, int]] = {}
        self._correlation_id = 0

    def encode(self, key: int, version: int, **fields: Any) -> bytes:
        """A framed request, as kafka-python sends it."""
        self._correlation_id += 1
        request = REQUESTS[key](version=version, **fields)
        request.API_VERSION = version
        request.with_header(correlation_id=self._correlation_id, client_id="rig")
        self._asked[self._correlation_id] = (key, version)
        return bytes(request.encode(header=True, framed=True))

    def feed(self, data: bytes) -> None:
        """Let the server receive, as far as it reads."""
        while data and not self.transport.closed:
            assert self.transport.reading, "the server does not read"
            buffer = self.connection.get_buffer(-1)
            size = min(len(buffer), len(data))
            buffer[:size] = data[:size]
            self.connection.buffer_updated(size)
            data = data[size:]

    def ask(self, key: int, version: int, **fields: Any) -> Any:
        """The one answer to a request, after a turn of the loop."""
        self.feed(self.encode(key, version, **fields))
        self.rig.turn()
        (answer,) = self.answers()
        return answer

    def frames(self) -> list[bytes]:
        """Whole responses that have arrived, without their sizes."""
        data, found = self.transport.received, []
        while len(data) >= 4:
            (size,) = struct.unpack_from(">i", data)
            assert len(data) >= 4 + size, "a response was cut short"
            found.append(data[4 : 4 + size])
            data = data[4 + size :]
        assert not data
        self.transport.received = b""
        return found

    def answers(self) -> list[Any]:
        """The responses that have arrived, decoded by kafka-python."""
        found = []
        for frame in self.frames():
            key, version = self._asked.pop(int.from_bytes(frame[:4], "big"))
            found.append(RESPONSES[key].decode(frame, version=version, header=True))
        return found

    def correlation_ids(self) -> list[int]:
        return [int.from_bytes(frame[:4], "big") for frame in self.frames()]


class Rig:
    """Broker and server in one loop."""

    def __init__(self, **settings: Any) -> None:
        """`settings` by dotted path with '__' for the dot, as `limits__max_connections=1`."""
        given = {"log.segment_bytes": "8MiB", "log.low_disk_bytes": 0}
        given |= {path.replace("__", "."): value for path, value in settings.items()}
        self.clock = VirtualClock()
        self.fs = FaultyFileSystem(random.Random(1))
        loaded = load_settings(None, {}, given)
        self.broker = Broker(self.fs, loaded, self.clock, random.Random(2).randbytes)
        self.broker.open()
        self.loop = FakeLoop()
        self.server = Server(self.broker, loaded, self.loop)  # type: ignore[arg-type]

    def client(self) -> RigClient:
        return RigClient(self)

    def topic(self, name: str, partitions: int = 1, **configs: str) -> list[Partition]:
        topic, _ = self.broker.create_topic(name, partitions, {key.replace("_", "."): configs[key] for key in configs})
        self.turn()
        return topic.partitions

    def append(self, partition: Partition, *values: bytes) -> int:
        """Append a batch and make it visible; returns its base offset."""
        appended = self.broker.append(partition, memoryview(bytearray(batch(*values))), self.clock.now_ms)
        self.turn()
        return appended.base_offset

    def turn(self) -> None:
        """A turn of the loop: write, sync, make visible, answer."""
        broker = self.broker
        broker.write()
        job = broker.log.sync_job()
        if job is not None:
            error = None
            try:
                job.run()
            except OSError as failure:
                error = failure
            broker.finish_sync(job, error)
        broker.settle()
        self.loop.run()

    def pass_time(self, ms: int) -> None:
        self.clock.now_ms += ms
        self.broker.hold.expire(self.clock.now_ms)
        self.loop.run()


def batch(*values: bytes, producer_id: int = -1, sequence: int = -1) -> bytes:
    records = [(None, value, 1000 + at, ()) for at, value in enumerate(values)]
    return build_batch(
        records,
        producer_id=producer_id,
        producer_epoch=0 if producer_id >= 0 else -1,
        base_sequence=sequence,
    )
