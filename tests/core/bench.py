"""A broker under glass: virtual time, a faulty disk, and a driver that does in one call what the loop does in a
turn."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from typing import Any

from halfmoon.config.settings import Settings, load_settings
from halfmoon.core.append_types import Produced
from halfmoon.core.catalog.owners import ThisNode
from halfmoon.core.catalog.topics import Partition
from halfmoon.core.hold import HoldService
from halfmoon.core.identity import Identity
from halfmoon.core.jobs import Job
from halfmoon.core.kernel import Shard
from halfmoon.core.live import Live
from halfmoon.core.records.batches import build_batch, iter_records
from halfmoon.core.steps import finish
from halfmoon.core.storage.files import FileSystem
from halfmoon.errors import BrokerError, TakesLongError
from halfmoon.services.cleaner.reading import SourceGoneError
from halfmoon.services.common.filters import FilterCompiler, FilterSyntaxError
from halfmoon.services.waiting.types import PutInterceptor, Relay
from halfmoon.testing.faulty_files import FaultyFileSystem
from halfmoon.testing.node import BareNode

SEGMENT = 64 << 10


class ValueFilter:
    """Matches records by their value; `needle` as it is asked for."""

    def __init__(self, wanted: Callable[[bytes], bool], needle: bytes | None = None) -> None:
        self._wanted = wanted
        self.needle = None if needle is None else re.compile(re.escape(needle))

    def match(self, record: Any) -> bool:
        return self._wanted(record.value or b"")


def compile_prefix(expression: str) -> ValueFilter:
    """Values that begin so. Every record is read."""
    if not expression:
        raise FilterSyntaxError("expected a prefix", 0, expression)
    return ValueFilter(lambda value: value.startswith(expression.encode()))


def compile_holding(expression: str) -> ValueFilter:
    """Values that hold this."""
    return ValueFilter(lambda value: expression.encode() in value, expression.encode())


LANGUAGES: dict[str, FilterCompiler] = {"prefix": compile_prefix, "holding": compile_holding}


class VirtualClock:
    def __init__(self) -> None:
        self.now_ms = 1_700_000_000_000

    def wall_ms(self) -> int:
        return self.now_ms

    def mono_ms(self) -> int:
        return self.now_ms


def open_broker(
    fs: FileSystem,
    clock: VirtualClock,
    *,
    sections: dict[str, dict[str, Any]] | None = None,
    languages: Mapping[str, FilterCompiler] = LANGUAGES,
    interceptors: Sequence[PutInterceptor] = (),
    relays: Sequence[Relay] = (),
    off: Collection[str] = (),
    shard: int | None = None,
    **log: Any,
) -> BareNode:
    """A broker with small segments. `log`: what else stands under `$.log`; `sections`: the other sections.
    `off`: features that do nothing. `shard`: the number of a shard."""
    small = {"segment_bytes": SEGMENT, "index_checkpoint_bytes": 16 << 10, "low_disk_bytes": 0}
    settings = load_settings({"log": small | log} | (sections or {}), {}, {})
    dice = random.Random(fs.dice.random() if isinstance(fs, FaultyFileSystem) else 1)
    one_of_many = None if shard is None else shard_of(shard, settings)
    broker = BareNode(fs, settings, clock, dice.randbytes, off=off, shard=one_of_many)
    broker.open()
    broker.use(languages, interceptors, relays)
    broker.start()
    return broker


def shard_of(number: int, settings: Settings) -> Shard:
    """A shard that has nothing in common with others."""
    return Shard(number, Identity(1, "cluster", 7), ThisNode(), HoldService(settings.hold), Live(settings))


def turn(broker: BareNode) -> None:
    """Write, sync, make visible, answer; then all the slow jobs."""
    broker.write()
    sync(broker)
    broker.settle()
    broker.housekeeping.plan()
    jobs(broker)


def sync(broker: BareNode) -> None:
    job = broker.log.sync_job()
    if job is not None:
        error = None
        try:
            job.run()
        except OSError as failure:
            error = failure
        broker.finish_sync(job, error)


def jobs(broker: BareNode) -> None:
    while (job := housekeeping_job(broker) or broker.cleaner.next_job()) is not None:
        try:
            result = job.run()
        except (OSError, SourceGoneError) as error:
            job.failed(error)
        else:
            job.done(result)


def drop_oldest(broker: BareNode) -> None:
    """The oldest segment goes, whatever is in it."""
    for _ in broker.housekeeping._retention._drop_oldest():
        pass


def relay(broker: BareNode) -> None:
    """Turns and relays, until there is nothing left to move."""
    turn(broker)
    while broker.relays.has_work:
        while broker.relays.has_work:
            loading = broker.relays.step()
            if loading is not None:
                try:
                    value = loading.load()
                except (OSError, BrokerError) as error:
                    loading.failed(error)
                else:
                    loading.loaded(value)
        turn(broker)


def batch(
    *values: bytes, producer_id: int = -1, sequence: int = -1, epoch: int = 0, timestamp: int = 1000
) -> memoryview:
    records = [(None, value, timestamp + at, ()) for at, value in enumerate(values)]
    return memoryview(
        bytearray(
            build_batch(
                records,
                producer_id=producer_id,
                producer_epoch=epoch if producer_id >= 0 else -1,
                base_sequence=sequence,
            )
        )
    )


def values(broker: BareNode, topic: str, index: int = 0) -> list[bytes]:
    return [value for _, value in read_all(broker, topic, index)]


def send(broker: BareNode, topic: str, *values: bytes, index: int = 0, **batch_fields: int) -> Produced:
    """Append one batch; see `turn` for what makes it durable."""
    found = broker.topic(topic)
    assert found is not None
    return append(broker, found.partitions[index], batch(*values, **batch_fields))


def append(broker: BareNode, partition: Partition, made: memoryview, producer: Any = None) -> Produced:
    """As a client's Produce, whose batch may be prepared in slices first."""
    try:
        return broker.append(partition, made, broker.clock.wall_ms(), producer)
    except TakesLongError as error:
        prepared = finish(error.steps(made))
        return broker.append(partition, made, broker.clock.wall_ms(), producer, prepared=prepared)


def fill(broker: BareNode, fs: FaultyFileSystem) -> None:
    """Let the disk be full, and the last segment too: nothing can be written any more, not even control frames."""
    turn(broker)
    fs.free = 0
    partition = next(iter(broker.catalog.by_name.values())).partitions[0]
    for note in ("x" * 1_000, ""):
        with suppress(BrokerError):
            while True:
                broker.groups.record("filler", [(partition, 0, -1, note)], reset=False)


def partition_of(broker: BareNode, topic: str, index: int = 0) -> Partition:
    found = broker.topic(topic)
    assert found is not None
    return found.partitions[index]


def flip(fs: FaultyFileSystem, path: str, at: int, count: int = 1) -> None:
    """Rot: bytes change on the disk and in the cache."""
    inode = fs.names[path]
    for byte in range(at, at + count):
        inode.cache[byte] ^= 0x5A
        if byte < len(inode.disk):
            inode.disk[byte] ^= 0x5A


def read_all(broker: BareNode, topic: str, index: int = 0) -> list[tuple[int, bytes]]:
    """(offset, value) of every visible record, damaged stretches stepped over."""
    found = broker.topic(topic)
    assert found is not None
    partition = found.partitions[index]
    records = []
    at = partition.start_offset
    while at < partition.high_watermark:
        try:
            read = broker.read(partition, at, 10_000, min_one=True)
        except BrokerError:
            at = next(high for low, high in partition.queue.damaged if low <= at < high)
            continue
        slices = read.cold() if read.cold is not None else read.slices
        if not slices:
            break
        for piece in slices:
            base = int.from_bytes(piece[:8], "big")
            for record in iter_records(piece):
                if base + record.offset_delta >= at:
                    records.append((base + record.offset_delta, record.value or b""))
            at = max(at, base + int.from_bytes(piece[23:27], "big") + 1)
    return records


def housekeeping_job(broker: BareNode) -> Job[object] | None:
    """The next one, once the cleaner has looked at everything."""
    while broker.cleaner.look():
        pass
    return broker.housekeeping.next_job()


def cleaning_job(broker: BareNode) -> Job[object] | None:
    while broker.cleaner.look():
        pass
    return broker.cleaner.next_job()
