"""Kafka's transactions, groups and compaction, beside Kafka."""

from __future__ import annotations

import os
import time
from functools import partial
from pathlib import Path

from benchmarks.bench import FEW, Bench, Cell, CellError, Figures, prefixed
from benchmarks.brokers import INTERVAL, KAFKA, Broker
from benchmarks.clients import topics
from benchmarks.readings import MB

SECONDS = 3.0
GROUPS = 3
COMPACTED = 10_000_000
KEYS = 1_000_000
VALUE_BYTES = 100
SEGMENT_BYTES = 64 * MB
CLEAN_LIMIT_S = 300.0
WARM_UP = 20_000
PACE = 500.0
ALONE_SECONDS = 10.0
LEFT = 0.35
"""What is cleaned takes so much of its former space at most: a tenth of the records are left, and for both brokers some
of the newest are not looked at yet."""
QUIET_S = 5.0
"""Nothing more is being freed when nothing was for so long."""
READY = {"min.cleanable.dirty.ratio": "0.01", "delete.retention.ms": "0", "min.compaction.lag.ms": "0"}


def committing(bench: Bench, broker: Broker) -> Figures:
    return bench.load(broker, "committing", topic=bench.topic("commits"), seconds=max(0.3, SECONDS * bench.scale))


def java_committing(bench: Bench, broker: Broker) -> Figures:
    topic = bench.topic("commits")
    topics.create(broker.bootstrap, topic)
    return bench.java(broker, "Committing", topic, f"{max(0.3, SECONDS * bench.scale):g}")


def joining(protocol: str, bench: Bench, broker: Broker) -> Figures:
    return bench.load(broker, "joining", topic=bench.topic("joins"), protocol=protocol, times=bench.times(GROUPS))


def compaction(bench: Bench, like: Broker) -> Figures:
    """In a broker of its own, with smaller files, so that they are not of the size of what is cleaned.

    The topic is filled first, and compacted from one moment on: how long that takes until space has come back; how much
    is left; and how long single messages take meanwhile, beside without it.
    """
    segment_bytes = max(MB, int(SEGMENT_BYTES * bench.scale))
    if like.name == KAFKA:
        broker, own = bench.brokers.start_kafka(), {"segment.bytes": str(segment_bytes), "file.delete.delay.ms": "1000"}
    else:
        broker, own = bench.brokers.start_halfmoon(like.name, {"HALFMOON_LOG_SEGMENT_BYTES": str(segment_bytes)}), {}
    try:
        return _compaction(bench, broker, own)
    finally:
        bench.brokers.stop(broker)


def _compaction(bench: Bench, broker: Broker, own: dict[str, str]) -> Figures:
    assert broker.data is not None
    topic, count = bench.topic("compacted"), bench.times(COMPACTED, least=100_000)
    bench.load(broker, "make_topic", topic=topic, configs=own)
    filled = bench.load(
        broker, "produce_keyed", topic=topic, count=count, keys=max(1_000, count * KEYS // COMPACTED), size=VALUE_BYTES
    )
    bench.load(broker, "one_by_one", topic=bench.topic("warm"), count=bench.times(WARM_UP))
    bench.settle()
    alone = bench.load(
        broker, "paced", topic=bench.topic("paced"), rate=PACE,
        count=int(PACE * max(2.0, ALONE_SECONDS * bench.scale)),
    )  # fmt: skip
    before_mb = allocated_mb(broker.data)
    with bench.background(broker, "paced_on", topic=bench.topic("paced"), rate=PACE) as beside:
        begun = time.monotonic()
        bench.load(broker, "compact", topic=topic, configs=READY)
        while allocated_mb(broker.data) > before_mb * LEFT:
            if time.monotonic() - begun > CLEAN_LIMIT_S:
                raise CellError(f"{allocated_mb(broker.data):.0f} of {before_mb:.0f} MB are left after minutes")
            time.sleep(0.25)
        cleaned_s = time.monotonic() - begun
    after_mb = _settled_mb(broker.data)
    left = bench.load(broker, "count_keys", topic=topic)
    if left["keys"] != filled["keys"]:
        raise CellError(f"{filled['keys']:.0f} keys were written, {left['keys']:.0f} are there")
    return {
        "produce_rec_s": filled["rec_s"], "cleaned_s": cleaned_s, "before_mb": before_mb, "after_mb": after_mb,
        "records_left": left["records"], "p99_times": beside["p99_ms"] / alone["p99_ms"],
        **prefixed("beside", beside), **prefixed("alone", alone),
    }  # fmt: skip


def _settled_mb(folder: Path) -> float:
    """The space that is taken once nothing more of it is being freed."""
    least, since = allocated_mb(folder), time.monotonic()
    end = since + CLEAN_LIMIT_S
    while time.monotonic() - since < QUIET_S and time.monotonic() < end:
        time.sleep(0.25)
        now = allocated_mb(folder)
        if now < least - 1:
            least, since = now, time.monotonic()
    return least


def allocated_mb(folder: Path) -> float:
    """What the files below take of the disk; sparse ones and those allocated ahead as they are."""
    total = 0
    for where, _, names in os.walk(folder):
        for name in names:
            try:
                total += os.stat(os.path.join(where, name)).st_blocks * 512  # noqa: PTH116, PTH118 - thousands of them
            except FileNotFoundError:
                continue
    return total / MB


CELLS = (
    Cell("rdkafka_commits", "Kafka's transactions of one record and of 1,000, and offset commits: librdkafka",
         committing, rounds=FEW),
    Cell("java_commits", "Kafka's transactions of one record and of 1,000, and offset commits: Java",
         java_committing, rounds=FEW),
    *(Cell(f"joins_{protocol}", f"first and second member of a {protocol} group, librdkafka",
           partial(joining, protocol), on=(KAFKA, INTERVAL), rounds=FEW) for protocol in ("classic", "consumer")),
    Cell("compaction", f"{COMPACTED:,} records of {VALUE_BYTES} B with {KEYS:,} keys are compacted", compaction,
         on=(KAFKA, INTERVAL), rounds=FEW),
)  # fmt: skip
