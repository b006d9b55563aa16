"""What tests of compaction have in common: keyed batches, maps of what a reader gets, and a cleaner that is asked
to."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

from halfmoon.core.records.batches import Record, build_batch, iter_records
from halfmoon.errors import BrokerError
from halfmoon.testing.faulty_files import FaultyFileSystem
from halfmoon.testing.node import BareNode
from tests.core.bench import VirtualClock, jobs, open_broker, partition_of, turn

COMPACT = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0"}

Pair = tuple[bytes | None, bytes | None]


def keyed(*pairs: Pair, timestamp: int = 1000, codec: int = 0, **fields: int) -> memoryview:
    """A batch of (key, value)."""
    rows = [(key, value, timestamp + at, ()) for at, (key, value) in enumerate(pairs)]
    return memoryview(bytearray(build_batch(rows, codec=codec, **fields)))


def put(broker: BareNode, topic: str, *pairs: Pair, index: int = 0, **fields: int) -> int:
    """Append one batch of (key, value); its base offset."""
    return broker.append(
        partition_of(broker, topic, index), keyed(*pairs, **fields), broker.clock.wall_ms()
    ).base_offset


def fresh(**log: Any) -> tuple[BareNode, VirtualClock, FaultyFileSystem]:
    clock, fs = VirtualClock(), FaultyFileSystem(random.Random(1))
    return open_broker(fs, clock, **log), clock, fs


def seal(broker: BareNode) -> None:
    """Everything appended so far becomes index files."""
    turn(broker)
    broker.housekeeping.freeze()
    turn(broker)


def clean(broker: BareNode, clock: VirtualClock) -> None:
    """Let the cleaner do all there is to do, and remove what it has replaced."""
    seal(broker)
    clock.now_ms += broker.settings.log.cleaner.interval_ms
    broker.housekeeping.turn()
    jobs(broker)
    turn(broker)
    broker.housekeeping.drop_segments()
    turn(broker)


def batches(broker: BareNode, topic: str, index: int = 0, *, max_bytes: int = 10_000) -> Iterator[memoryview]:
    """The batches that a reader gets who goes on behind each batch's last offset."""
    partition = partition_of(broker, topic, index)
    at = partition.start_offset
    while at < partition.high_watermark:
        try:
            read = broker.read(partition, at, max_bytes, min_one=True)
        except BrokerError:
            at = next(high for low, high in partition.queue.damaged if low <= at < high)
            continue
        slices = read.cold() if read.cold is not None else read.slices
        if not slices:
            assert any(low > at for low, _ in partition.queue.damaged), f"{partition!r} has nothing at {at}"
            at = next(low for low, _ in partition.queue.damaged if low > at)
        for piece in slices:
            base = int.from_bytes(piece[:8], "big")
            after = base + int.from_bytes(piece[23:27], "big") + 1
            assert after > at, "a reader would not get on"
            at = after
            yield memoryview(piece)


def records(broker: BareNode, topic: str, index: int = 0, *, max_bytes: int = 10_000) -> list[tuple[int, Record]]:
    """(offset, record) in the order of reading, from the partition's start."""
    start = partition_of(broker, topic, index).start_offset
    found = []
    for batch in batches(broker, topic, index, max_bytes=max_bytes):
        base = int.from_bytes(batch[:8], "big")
        found += [(base + record.offset_delta, record) for record in iter_records(batch)]
    return [each for each in found if each[0] >= start]


def pairs(broker: BareNode, topic: str, index: int = 0) -> list[tuple[int, bytes | None, bytes | None]]:
    return [(offset, record.key, record.value) for offset, record in records(broker, topic, index)]


def state(broker: BareNode, topic: str, index: int = 0) -> dict[bytes | None, bytes]:
    """The map that a reader makes of what he gets."""
    found: dict[bytes | None, bytes] = {}
    for _, record in records(broker, topic, index):
        if record.value is None:
            found.pop(record.key, None)
        else:
            found[record.key] = record.value
    return found
