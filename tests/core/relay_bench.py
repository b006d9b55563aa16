"""What tests of relays share: records with headers sent and read back, time that passes, and brokers that die."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from halfmoon.core.records.batches import build_batch, iter_records, parse_header
from halfmoon.testing.faulty_files import FaultyFileSystem, ProcessDied
from halfmoon.testing.node import BareNode
from tests.core.bench import VirtualClock, append, partition_of, relay
from tests.core.deaths import AFTER, left_of

Row = tuple[bytes, dict[str, str]]
"""A value and the record's headers."""
Told = TypeVar("Told")


def send(broker: BareNode, topic: str, *rows: Row, index: int = 0, **fields: Any) -> int:
    records = [
        (b"k", value, 500 + at, tuple((name, text.encode()) for name, text in headers.items()))
        for at, (value, headers) in enumerate(rows)
    ]
    batch = memoryview(bytearray(build_batch(records, **fields)))
    return append(broker, partition_of(broker, topic, index), batch).base_offset


def found(broker: BareNode, topic: str, index: int = 0) -> list[tuple[int, bytes | None, int, dict[str, bytes | None]]]:
    """(offset, value, timestamp, headers) of every visible record."""
    partition = partition_of(broker, topic, index)
    rows = []
    at = partition.start_offset
    while at < partition.high_watermark:
        read = broker.read(partition, at, 1 << 20, min_one=True)
        for piece in read.cold() if read.cold is not None else read.slices:
            header = parse_header(piece)
            rows += [
                (header.base_offset + r.offset_delta, r.value, r.timestamp, dict(r.headers))
                for r in iter_records(piece)
            ]
            at = header.base_offset + header.last_offset_delta + 1
    return rows


def values(broker: BareNode, topic: str, index: int = 0) -> list[bytes | None]:
    return [row[1] for row in found(broker, topic, index)]


def pass_ms(broker: BareNode, clock: VirtualClock, passed_ms: int) -> None:
    """Time passes, and the loop's timers go off as they are set."""
    until = clock.now_ms + passed_ms
    while (due := broker.relays.next_deadline()) is not None and due <= until:
        clock.now_ms = max(clock.now_ms, due)
        broker.relays.expire(clock.now_ms)
        relay(broker)
    clock.now_ms = until
    relay(broker)


def lose_derived(fs: FaultyFileSystem) -> None:
    for path in list(fs.names):
        if path in ("checkpoint", "clean") or path.startswith(("index/", "keys/")):
            fs.remove(path)
    fs.sync_directory("")


def deaths(
    play: Callable[[FaultyFileSystem, VirtualClock, Told], None],
    told: Callable[[], Told],
    *,
    least: int = 1,
) -> Iterator[tuple[FaultyFileSystem, VirtualClock, Told]]:
    """What a broker finds that starts after another has died at each operation of the file system in turn, by kill −9
    and by a loss of power.

    `play` is what it died of, and keeps in `told()` what was answered meanwhile. Every other time all files that can be
    derived from the log are lost too. `least`: operations there must have been.
    """
    fs = FaultyFileSystem(random.Random(0))
    play(fs, VirtualClock(), told())
    assert fs.operations > least
    for operation in range(1, fs.operations + 1):
        dying, clock, answered = FaultyFileSystem(random.Random(operation)), VirtualClock(), told()
        dying.crash_at = operation
        try:
            play(dying, clock, answered)
        except ProcessDied:
            pass
        for after in AFTER:
            print(f"died at operation {operation}: {after}")
            survived = left_of(dying, after)
            if operation % 2:
                lose_derived(survived)
            yield survived, copy.copy(clock), copy.deepcopy(answered)
