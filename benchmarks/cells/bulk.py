"""Throughput with big batches: librdkafka and the Java client."""

from __future__ import annotations

from functools import partial

from benchmarks.bench import Bench, Cell, Figures, named
from benchmarks.brokers import Broker

RECORDS = {"100": (100, 2_000_000), "1k": (1_000, 600_000)}
"""Figure's suffix → bytes a record, records. The peer's own cells are half as long, so twice their scale."""
SPREAD_PARTITIONS = 100
SPREAD_RECORDS = 1_500_000
READY_MADE_BYTES, READY_MADE_RECORDS = 1_000, 1_000_000
JAVA_RECORDS = 2_000_000
CODEC_RECORDS = 300_000


def librdkafka(bench: Bench, broker: Broker) -> Figures:
    """Produce and consume, 100 B and 1 KB: the peer's cells where there are any, our own of the same kind elsewhere."""
    return _by_the_peer(bench, broker) if bench.peer is not None else _by_ourselves(bench, broker)


def _by_the_peer(bench: Bench, broker: Broker) -> Figures:
    found: Figures = {}
    for suffix, (size, records) in RECORDS.items():
        bench.settle()
        rows = bench.perf(broker, "rdkafka", rf"^produce {size}B .* acks=1 none$|^consume {size}B .* none$", full=2)
        megabytes = bench.times(records) * size / 2**20
        for cell, row in rows.items():
            cpu_ms = row["broker_cpu_s"] * 1e3
            figures = {"rec_s": row["rec_s"], "mb_s": row["MB_s"], "cpu_ms_per_mb": cpu_ms / megabytes}
            found |= named(f"{cell.split()[0]}_{suffix}", figures)
    return found


def _by_ourselves(bench: Bench, broker: Broker) -> Figures:
    found: Figures = {}
    for suffix, (size, records) in RECORDS.items():
        bench.settle()
        count, topic = bench.times(records), bench.topic(f"bulk-{suffix}")
        for verb in ("produce", "consume"):
            found |= named(f"{verb}_{suffix}", _moved(bench, broker, verb, topic, size, count))
    return found


def _moved(bench: Bench, broker: Broker, verb: str, topic: str, size: int, count: int) -> Figures:
    return bench.cpu_per_mb(
        broker, count * size / 2**20, lambda: bench.load(broker, verb, topic=topic, size=size, count=count)
    )


def spread(bench: Bench, broker: Broker) -> Figures:
    bench.settle()
    count = bench.times(SPREAD_RECORDS)
    figures = bench.cpu_per_mb(
        broker,
        count * 100 / 2**20,
        lambda: bench.load(
            broker, "produce", topic=bench.topic("spread"), size=100, count=count, partitions=SPREAD_PARTITIONS
        ),
    )
    return named("spread", figures)


def ready_made(bench: Bench, broker: Broker) -> Figures:
    """1 KB records in batches that were made before: the client costs its socket alone."""
    bench.settle()
    return named(
        "ready_made",
        _moved(
            bench, broker, "ready_made", bench.topic("ready-made"), READY_MADE_BYTES, bench.times(READY_MADE_RECORDS)
        ),
    )


def java(bench: Bench, broker: Broker) -> Figures:
    """ProducerPerformance with its default settings (16 KB batches)."""
    bench.settle()
    (row,) = bench.perf(broker, "produce", r"^100B x \d+ acks=1 none p=1$").values()
    megabytes = bench.times(JAVA_RECORDS) * 100 / 2**20
    return named(
        "java",
        {"rec_s": row["rec_s"], "p99_ms": row["p99_ms"], "cpu_ms_per_mb": row["broker_cpu_s"] * 1e3 / megabytes},
    )


def codecs(bench: Bench, broker: Broker) -> Figures:
    """Orders of 1 KB in JSON. The client compresses on the same cores, so the broker's own time says more."""
    found: Figures = {}
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        bench.settle()
        count, topic = bench.times(CODEC_RECORDS), bench.topic(f"codec-{codec}")
        produce = partial(
            bench.load, broker, "produce", topic=topic, size=1_000, count=count, orders=True,
            over={"compression.type": codec},
        )  # fmt: skip
        found |= named(f"codec_{codec}", bench.cpu_per_mb(broker, count * 1_000 / 2**20, produce))
    return found


CELLS = (
    Cell("bulk", "librdkafka, 1 MB batches: produce and consume 100 B and 1 KB", librdkafka),
    Cell("codecs", "librdkafka, 1 MB batches: produce 1 KB of JSON with each codec", codecs),
    Cell("ready_made", "plain socket, 1 MB batches of 1 KB records that were made before", ready_made),
    Cell("spread", f"librdkafka, produce 100 B over {SPREAD_PARTITIONS} partitions", spread),
    Cell("java", "Java ProducerPerformance, 100 B", java),
)
