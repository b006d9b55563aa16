"""What a broker holds in memory, and what many clients that do nothing cost."""

from __future__ import annotations

import time

from benchmarks.bench import ALL, FEW, Bench, Cell, Figures, prefixed
from benchmarks.brokers import INTERVAL, KAFKA, Broker

IDLE_CONSUMERS = 1_000
RATE = 100.0
SECONDS = 10
REST_S = 6.0
"""Halfmoon gives buffers back every 5 s."""


def memory(bench: Bench, broker: Broker) -> Figures:
    """Before the first work, and now: a while after all the work of the cells before."""
    time.sleep(REST_S)
    return {"idle_mb": broker.idle_mb, "loaded_mb": broker.anonymous_mb()}


def idle(bench: Bench, broker: Broker) -> Figures:
    """End to end latency at 100 messages a second, without and with the waiting consumers; and their memory."""
    count = bench.times(int(RATE) * SECONDS, least=100)

    def measure() -> Figures:
        return bench.load(broker, "latency", topic=bench.topic("many"), count=count, rate=RATE)

    without = measure()
    before_mb = broker.anonymous_mb()
    before_s, begun = broker.cpu_s(), time.perf_counter()
    with bench.background(broker, "idle", topic=bench.topic("idle"), count=IDLE_CONSUMERS):
        found = measure()
        during_mb = broker.anonymous_mb()
        cores = (broker.cpu_s() - before_s) / (time.perf_counter() - begun)
    extra = {"extra_mb": during_mb - before_mb, "total_mb": during_mb, "cores": cores}
    return found | prefixed("without", without) | extra


def startup(bench: Bench, broker: Broker) -> Figures:
    """Another one of the same kind, with an empty directory."""
    fresh = bench.brokers.start_kafka() if broker.name == KAFKA else bench.brokers.start_halfmoon(broker.name)
    ready_ms = fresh.ready_ms
    bench.brokers.stop(fresh)
    return {"ready_ms": ready_ms}


CELLS = (
    Cell("memory", "anonymous memory, idle and after the load of the cells before", memory, rounds=FEW),
    Cell("idle", f"{IDLE_CONSUMERS:,} idle long-polling consumers", idle, ALL),
    Cell("startup", "from the start of the process to the first answer", startup, (KAFKA, INTERVAL)),
)
