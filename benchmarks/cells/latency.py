"""End to end."""

from __future__ import annotations

from benchmarks.bench import Bench, Cell, Figures, named
from benchmarks.brokers import Broker

PACED_RATE = 500.0
PACED_SECONDS = 10
UNPACED = 5_000


def paced(bench: Bench, broker: Broker) -> Figures:
    count = bench.times(int(PACED_RATE) * PACED_SECONDS)
    return named("e2e_500", bench.load(broker, "latency", topic=bench.topic("e2e500"), count=count, rate=PACED_RATE))


def unpaced(bench: Bench, broker: Broker) -> Figures:
    return named("e2e", bench.load(broker, "latency", topic=bench.topic("e2e"), count=bench.times(UNPACED)))


CELLS = (
    Cell("e2e_500", f"end to end, plain sockets, {PACED_RATE:.0f} messages a second", paced),
    Cell("e2e", "end to end, plain sockets, one after the other", unpaced),
)
