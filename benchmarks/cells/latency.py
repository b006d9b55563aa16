"""End to end."""

from __future__ import annotations

from benchmarks.bench import AND_BARE, Bench, Cell, Figures
from benchmarks.brokers import KAFKA_SYNC, Broker

PACED_RATE = 500.0
PACED_SECONDS = 10
UNPACED = 5_000


def paced(bench: Bench, broker: Broker) -> Figures:
    count = bench.times(int(PACED_RATE) * PACED_SECONDS)
    return bench.load(broker, "latency", topic=bench.topic("e2e500"), count=count, rate=PACED_RATE)


def unpaced(bench: Bench, broker: Broker) -> Figures:
    return bench.load(broker, "latency", topic=bench.topic("e2e"), count=bench.times(UNPACED))


CELLS = (
    Cell("e2e_500", f"end to end, plain sockets, {PACED_RATE:.0f} messages a second", paced, (*AND_BARE, KAFKA_SYNC)),
    Cell("e2e", "end to end, plain sockets, one after the other", unpaced, (*AND_BARE, KAFKA_SYNC)),
)
