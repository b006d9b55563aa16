"""Adapters without a network: a real broker on a disk in memory, virtual time, transports that are lists."""

from __future__ import annotations

import random
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from socket import IPPROTO_TCP, TCP_INFO
from typing import Any

from halfmoon.config.settings import load_settings
from halfmoon.core.catalog.topics import Partition
from halfmoon.core.records.batches import build_batch
from halfmoon.errors import BrokerError
from halfmoon.hooks.plugins import load_plugins
from halfmoon.plugins import BUILT_IN
from halfmoon.server.plugin_host import Host
from halfmoon.testing.faulty_files import FaultyFileSystem
from halfmoon.testing.node import BareNode
from tests.core.bench import VirtualClock, sync


class FakeLoop:
    """Collects what is to be called soon; runs what is to be run in a thread when `run_threads` says so."""

    def __init__(self, clock: VirtualClock) -> None:
        self.clock = clock
        self.soon: list[Callable[[], object]] = []
        self.later: list[tuple[int, Callable[[], object]]] = []
        self.threads: list[tuple[Callable[[], object], Future[object]]] = []

    def call_soon(self, callback: Callable[[], object]) -> None:
        self.soon.append(callback)

    def call_later(self, delay_s: float, callback: Callable[[], object]) -> FakeTimer:
        entry = self.clock.mono_ms() + round(1000 * delay_s), callback
        self.later.append(entry)
        return FakeTimer(self, entry)

    def run_later(self) -> None:
        """Call what is due."""
        due = [callback for at_ms, callback in self.later if at_ms <= self.clock.mono_ms()]
        self.later = [entry for entry in self.later if entry[0] > self.clock.mono_ms()]
        for callback in due:
            callback()

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


class FakeTimer:
    """What `call_later` returns."""

    def __init__(self, loop: FakeLoop, entry: tuple[int, Callable[[], object]]) -> None:
        self._loop = loop
        self._entry = entry

    def cancel(self) -> None:
        self._loop.later = [each for each in self._loop.later if each is not self._entry]


class FakeTransport:
    """Keeps what is written. `slow`: nothing is sent until `drain`."""

    def __init__(self, peer: tuple[str, int] = ("10.0.0.9", 40_000), own: tuple[str, int] = ("10.0.0.1", 9092)) -> None:
        self._names = {"peername": peer, "sockname": own}
        self.protocol: Any = None
        self.received = b""
        self.writes = 0
        self.unsent = b""
        self.slow = False
        self.reading = True
        self.closed = False
        self.high = 0
        self.peer_has_left = False

    def get_extra_info(self, name: str) -> Any:
        return self if name == "socket" else self._names.get(name)

    def getsockopt(self, level: int, option: int, size: int) -> bytes:
        """The socket's: TCP's state, established or waiting to be closed."""
        assert (level, option, size) == (IPPROTO_TCP, TCP_INFO, 1)
        return b"\x08" if self.peer_has_left else b"\x01"

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


class BrokerRig:
    """A broker with its built-in plugins, whose loop is the test."""

    def __init__(self, **settings: Any) -> None:
        """`settings` by dotted path with '__' for the dot, as `limits__max_connections=1`."""
        given = {"log.segment_bytes": "1MiB", "log.low_disk_bytes": 0}
        given |= {path.replace("__", "."): value for path, value in settings.items()}
        self.clock = VirtualClock()
        self.fs = FaultyFileSystem(random.Random(1))
        self.settings = load_settings(None, {}, given)
        self.broker = BareNode(self.fs, self.settings, self.clock, random.Random(2).randbytes)
        self.broker.open()
        self.loop = FakeLoop(self.clock)

    def start_plugins(self) -> None:
        broker = self.broker
        self.plugins = load_plugins(self.settings, BUILT_IN)
        broker.use(self.plugins.filters, self.plugins.interceptors, self.plugins.relays)
        broker.start()
        self.plugins.attach(Host(broker, Path("state")))

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
        sync(broker)
        broker.settle()
        self.loop.run()

    def turns(self) -> None:
        """Turns of the loop and of what moves messages, until nothing is left to be done."""
        self.turn()
        relays = self.broker.relays
        while relays.has_work or self.broker.dirty or self.loop.threads:
            if relays.has_work:
                loading = relays.step()
                if loading is not None:
                    try:
                        value = loading.load()
                    except (OSError, BrokerError) as error:
                        loading.failed(error)
                    else:
                        loading.loaded(value)
            self.loop.run_threads()
            self.turn()

    def pass_time(self, ms: int) -> None:
        self.clock.now_ms += ms
        self.broker.hold.expire(self.clock.now_ms)
        self.broker.relays.expire(self.clock.now_ms)
        self.broker.groups.expire(self.clock.now_ms)
        self.loop.run_later()
        self.loop.run()


def batch(*values: bytes, producer_id: int = -1, sequence: int = -1, timestamp_ms: int = 1000) -> bytes:
    records = [(None, value, timestamp_ms + at, ()) for at, value in enumerate(values)]
    return build_batch(
        records,
        producer_id=producer_id,
        producer_epoch=0 if producer_id >= 0 else -1,
        base_sequence=sequence,
    )
