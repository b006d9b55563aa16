"""From a produced batch to the page cache."""

from __future__ import annotations

import time

import pyperf

from benchmarks.micro import node
from halfmoon.core.records.batches import build_batch, check_batch

SIZES = {"100 B": 100, "16 KB": 16 << 10, "1 MB": 1 << 20}
BATCHES_A_TURN = 32
ROOM_BYTES = 64 << 20
"""A partition is emptied after so much, so that a long run does not fill the disk."""


def add(runner: pyperf.Runner) -> None:
    for name, size in SIZES.items():
        batch = bytearray(build_batch([(None, b"x" * size, 1_700_000_000_000, ())]))
        runner.bench_func(f"check_batch {name}", check_batch, memoryview(batch), 2 << 20)
        runner.bench_time_func(f"append and write {name}, {BATCHES_A_TURN} a turn", _appends, batch)


def _appends(loops: int, batch: bytearray) -> float:
    """Seconds for `loops` batches: check, stamp, frame, and their share of a pwritev and of the index."""
    broker, topic = node.start()
    partition = topic.partitions[0]
    views = [memoryview(bytearray(batch)) for _ in range(BATCHES_A_TURN)]
    turns = max(1, loops // BATCHES_A_TURN)
    before_emptied = max(1, ROOM_BYTES // (len(batch) * BATCHES_A_TURN))
    took_s = 0.0
    for number in range(turns):
        begun = time.perf_counter()
        now_ms = broker.clock.wall_ms()
        for view in views:
            broker.append(partition, view, now_ms)
        node.turn(broker)
        took_s += time.perf_counter() - begun
        if number % before_emptied == before_emptied - 1:
            broker.delete_records(partition, -1)
            broker.flush()
            broker.housekeeping.retain()
    return took_s * loops / (turns * BATCHES_A_TURN)
