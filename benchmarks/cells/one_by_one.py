"""One message a request, acks=1."""

from __future__ import annotations

from benchmarks import readings
from benchmarks.bench import Bench, Cell, Figures, named
from benchmarks.brokers import SYNC, Broker
from benchmarks.clients.numbers import percentile

RAW_REQUESTS = 10_000
RDKAFKA_REQUESTS = 5_000


def single(bench: Bench, broker: Broker) -> Figures:
    """A plain socket's ping-pong, and librdkafka with a flush() after each message."""
    raw = bench.load(broker, "one_by_one", topic=bench.topic("raw"), count=bench.times(RAW_REQUESTS))
    count = bench.times(RDKAFKA_REQUESTS)
    rdkafka = bench.load(broker, "sync_one_by_one", topic=bench.topic("rdkafka"), count=count)
    return named("single_raw", raw) | named("single_rdkafka", rdkafka)


def single_by_the_peer(bench: Bench, broker: Broker) -> Figures:
    """The same by the peer's program, where there is one."""
    if bench.peer is None:
        return single(bench, broker)
    rows = bench.perf(broker, "unbatched", "^librdkafka sync|^raw socket ping-pong")
    found: Figures = {}
    for cell, row in rows.items():
        figures = {name: row[name] for name in ("req_s", "p50_ms", "p99_ms")}
        found |= named("single_raw" if cell.startswith("raw") else "single_rdkafka", figures)
    return found


def java(bench: Bench, broker: Broker) -> Figures:
    """ProducerPerformance with batch.size=0: a request for each record, five in flight."""
    (row,) = bench.perf(broker, "unbatched", r"batch\.size=0 acks=1 $", full=0.5).values()
    return named("single_java", {"rec_s": row["rec_s"], "p50_ms": row["p50_ms"], "p99_ms": row["p99_ms"]})


def disk(bench: Bench, broker: Broker) -> Figures:
    """What a 4 KB write with fdatasync takes on this disk, with no broker."""
    took_ms = readings.fdatasync_ms(bench.work, bench.times(500, least=50))
    return named("disk", {"fdatasync_p50_ms": percentile(took_ms, 0.5), "fdatasync_p99_ms": percentile(took_ms, 0.99)})


CELLS = (
    Cell("disk", "fdatasync of 4 KB, without a broker", disk, on=(SYNC,)),
    Cell("single", "one by one: plain socket, librdkafka flush()", single_by_the_peer),
    Cell("single_java", "one by one: Java ProducerPerformance, batch.size=0", java),
)
