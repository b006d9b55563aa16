"""Throughput with big batches: librdkafka, the Java client, and batches that were made before."""

from __future__ import annotations

from functools import partial

from benchmarks.bench import AND_BARE, Bench, Cell, Figures, prefixed
from benchmarks.brokers import Broker
from benchmarks.clients import topics, wire

RECORDS = {100: 2_000_000, 1_000: 600_000}
"""By the bytes of a record."""
SPREAD_PARTITIONS = 100
SPREAD_RECORDS = 1_500_000
READY_MADE_BYTES, READY_MADE_RECORDS, READY_MADE_BATCH = 1_000, 1_000_000, 980
"""A batch is some 1 MB."""
IN_FLIGHT = 5
"""As a Kafka producer's default (`max.in.flight.requests.per.connection`)."""
JAVA_RECORDS = 2_000_000
CODEC_RECORDS = 300_000


def librdkafka(size: int, bench: Bench, broker: Broker) -> Figures:
    """Produce and consume."""
    bench.settle()
    count, topic = bench.times(RECORDS[size]), bench.topic(f"bulk-{size}")
    found: Figures = {}
    for verb in ("produce", "consume"):
        load = partial(bench.load, broker, verb, topic=topic, size=size, count=count)
        found |= prefixed(verb, bench.cpu_per_mb(broker, count * size / 2**20, load))
    return found


def spread(bench: Bench, broker: Broker) -> Figures:
    bench.settle()
    count, topic = bench.times(SPREAD_RECORDS), bench.topic("spread")
    load = partial(bench.load, broker, "produce", topic=topic, size=100, count=count, partitions=SPREAD_PARTITIONS)
    return bench.cpu_per_mb(broker, count * 100 / 2**20, load)


def ready_made(bench: Bench, broker: Broker) -> Figures:
    """The client costs its socket alone."""
    bench.settle()
    topic, requests = bench.topic("ready-made"), bench.times(READY_MADE_RECORDS // READY_MADE_BATCH, least=IN_FLIGHT)
    topics.create(broker.bootstrap, topic)
    frame = wire.produce(topic, [(0, wire.batch(b"x" * READY_MADE_BYTES, READY_MADE_BATCH))])
    megabytes = requests * READY_MADE_BATCH * READY_MADE_BYTES / 2**20

    def load() -> Figures:
        got = bench.c(broker, frame, IN_FLIGHT, requests)
        return {"mb_s": got["requests_s"] * megabytes / requests}

    return bench.cpu_per_mb(broker, megabytes, load)


def java(bench: Bench, broker: Broker) -> Figures:
    """With its default settings (16 KB batches)."""
    bench.settle()
    count, topic = bench.times(JAVA_RECORDS), bench.topic("java")
    topics.create(broker.bootstrap, topic)
    return bench.cpu_per_mb(broker, count * 100 / 2**20, lambda: bench.java_producer(broker, topic, count))


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
        found |= prefixed(codec, bench.cpu_per_mb(broker, count * 1_000 / 2**20, produce))
    return found


CELLS = (
    Cell("bulk_1k", "librdkafka, 1 MB batches: produce and consume 1 KB", partial(librdkafka, 1_000), AND_BARE),
    Cell("bulk_100", "librdkafka, 1 MB batches: produce and consume 100 B", partial(librdkafka, 100), AND_BARE),
    Cell("codecs", "librdkafka, 1 MB batches: produce 1 KB of JSON with each codec", codecs, rounds=3),
    Cell("ready_made", "a client in C, 1 MB batches of 1 KB records that were made before", ready_made, AND_BARE),
    Cell("spread", f"librdkafka, produce 100 B over {SPREAD_PARTITIONS} partitions", spread, AND_BARE),
    Cell("java", "Java ProducerPerformance, 100 B", java, AND_BARE),
)
