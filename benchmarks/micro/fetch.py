"""From an offset to the slices that a socket is given."""

from __future__ import annotations

import time

import pyperf

from benchmarks.micro import node
from halfmoon.core.records.batches import build_batch

BATCHES = 20_000
READS = {"one batch": 1, "1 MB of small batches": 1 << 20}


def add(runner: pyperf.Runner) -> None:
    for name, max_bytes in READS.items():
        runner.bench_time_func(f"read {name}", _reads, max_bytes)


def _reads(loops: int, max_bytes: int) -> float:
    broker, topic = node.start()
    partition = topic.partitions[0]
    batch = build_batch([(None, b"x" * 100, 1_700_000_000_000, ())])
    for _ in range(BATCHES // 500):
        for _ in range(500):
            broker.append(partition, memoryview(bytearray(batch)), broker.clock.wall_ms())
        node.turn(broker)
    begun = time.perf_counter()
    for number in range(loops):
        broker.read(partition, number * 7919 % (BATCHES // 2), max_bytes, min_one=True)
    return time.perf_counter() - begun
