"""Requests of one message, acks=1."""

from __future__ import annotations

from functools import partial

from benchmarks import readings
from benchmarks.bench import AND_BARE, Bench, Cell, Figures
from benchmarks.brokers import SYNC, Broker
from benchmarks.cells.bulk import IN_FLIGHT
from benchmarks.clients import topics, wire
from benchmarks.clients.numbers import percentile

C_REQUESTS = 20_000
RDKAFKA_REQUESTS = 10_000
JAVA_REQUESTS = 50_000


def c(in_flight: int, requests: int, bench: Bench, broker: Broker) -> Figures:
    """Requests that were made before. CPU is the broker's; where it waits for one at a time, it also looks for the
    next one without sleeping, and CPU says nothing."""
    topic, count = bench.topic("c"), bench.times(requests, least=100)
    topics.create(broker.bootstrap, topic)
    frame = wire.produce(topic, [(0, wire.batch(b"x" * 100))])
    before_s = broker.cpu_s()
    got = bench.c(broker, frame, in_flight, count)
    found = {"req_s": got["requests_s"], "p50_ms": got["p50_us"] / 1e3, "p99_ms": got["p99_us"] / 1e3}
    return found | ({"cpu_us": (broker.cpu_s() - before_s) / count * 1e6} if in_flight > 1 else {})


def rdkafka(bench: Bench, broker: Broker) -> Figures:
    count = bench.times(RDKAFKA_REQUESTS)
    return bench.load(broker, "sync_one_by_one", topic=bench.topic("rdkafka"), count=count)


def java(bench: Bench, broker: Broker) -> Figures:
    """ProducerPerformance with batch.size=0: a request for each record, five in flight."""
    topic = bench.topic("java")
    topics.create(broker.bootstrap, topic)
    return bench.java_producer(broker, topic, bench.times(JAVA_REQUESTS), "linger.ms=0", "batch.size=0")


def disk(bench: Bench, broker: Broker) -> Figures:
    """What a 4 KB write with fdatasync takes on this disk, with no broker."""
    took_ms = readings.fdatasync_ms(bench.work, bench.times(500, least=50))
    return {"fdatasync_p50_ms": percentile(took_ms, 0.5), "fdatasync_p99_ms": percentile(took_ms, 0.99)}


CELLS = (
    Cell("disk", "fdatasync of 4 KB, without a broker", disk, on=(SYNC,)),
    Cell("one_by_one_c", "one by one: a client in C", partial(c, 1, C_REQUESTS), AND_BARE),
    Cell("five_in_the_air_c", "100 B, five in the air: a client in C", partial(c, IN_FLIGHT, 4 * C_REQUESTS), AND_BARE),
    Cell("one_by_one_rdkafka", "one by one: librdkafka flush()", rdkafka, AND_BARE),
    Cell("one_by_one_java", "one by one: Java ProducerPerformance, batch.size=0", java, AND_BARE),
)
