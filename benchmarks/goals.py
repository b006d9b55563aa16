"""What is to be reached. Figures are named by the cells that yield them: `cell.figure`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from benchmarks.brokers import INTERVAL, KAFKA, SYNC

Medians = dict[str, dict[str, float]]
"""Broker → figure → median."""


@dataclass(frozen=True, slots=True)
class Goal:
    """`figure` of broker `of`, divided by `against`'s where one is given, is to be at least or at most `target`.

    `against` is a broker (the same figure there) or another figure of the same broker.
    """

    title: str
    figure: str
    target: float
    stretch: float | None = None
    better: Literal["more", "less"] = "more"
    of: str = INTERVAL
    against: str | None = KAFKA
    unit: str = ""

    def value(self, medians: Medians) -> float | None:
        """What was reached; None where something of it was not measured."""
        own = medians.get(self.of, {}).get(self.figure)
        if self.against is None or own is None:
            return own
        base = self.base(medians)
        return own / base if base else None

    def base(self, medians: Medians) -> float | None:
        """What is compared with."""
        if self.against is None:
            return None
        if "." in self.against:
            return medians.get(self.of, {}).get(self.against)
        return medians.get(self.against, {}).get(self.figure)

    def reached(self, value: float, limit: float | None) -> bool:
        return limit is not None and (value >= limit if self.better == "more" else value <= limit)


def _throughput(title: str, figure: str, target: float, stretch: float | None) -> list[Goal]:
    """Beside Kafka without waiting for the disk; and waiting for it costs a fifth at most."""
    return [
        Goal(title, figure, target, stretch),
        Goal(f"{title}, sync beside interval", figure, 0.8, of=SYNC, against=INTERVAL),
    ]


def _less(title: str, figure: str, target: float, stretch: float | None = None, of: str = INTERVAL) -> Goal:
    return Goal(title, figure, target, stretch, "less", of)


GOALS: tuple[Goal, ...] = (
    *_throughput("produce 1 KB, MB/s", "produce_1k.mb_s", 1.5, 2.5),
    *_throughput("produce 1 KB, batches made before, MB/s", "ready_made.mb_s", 1.5, 2.5),
    *_throughput("produce 100 B, records/s", "produce_100.rec_s", 1.0, 1.2),
    *_throughput("produce 100 B over 100 partitions, records/s", "spread.rec_s", 1.5, None),
    *_throughput("Java ProducerPerformance 100 B, records/s", "java.rec_s", 1.3, 1.8),
    Goal("consume 1 KB, MB/s", "consume_1k.mb_s", 1.0, 1.2),
    Goal("consume 100 B, records/s", "consume_100.rec_s", 1.0, 1.2),
    Goal("one by one, plain socket, requests/s", "single_raw.req_s", 1.3, 2.0),
    Goal("one by one, librdkafka flush() each, requests/s", "single_rdkafka.req_s", 1.3, 2.0),
    Goal("one by one, Java batch.size=0, records/s", "single_java.rec_s", 1.3, 2.0),
    Goal(
        "one by one with sync: p50 beside request + fdatasync",
        "single_raw.p50_ms",
        1.5,
        None,
        "less",
        SYNC,
        "disk.floor_ms",
    ),
    _less("end to end, 500 messages/s, p50", "e2e_500.p50_ms", 0.7, 0.5),
    _less("end to end, 500 messages/s, p99", "e2e_500.p99_ms", 0.7),
    _less("end to end, 500 messages/s, p50, sync", "e2e_500.p50_ms", 1.2, of=SYNC),
    _less("end to end, one after the other, p50", "e2e.p50_ms", 0.7, 0.5),
    _less("end to end, one after the other, p99", "e2e.p99_ms", 0.7),
    _less("end to end, one after the other, p50, sync", "e2e.p50_ms", 1.2, of=SYNC),
    _less("server CPU per MB, produce 1 KB", "produce_1k.cpu_ms_per_mb", 1 / 3),
    _less("server CPU per MB, produce 1 KB, batches made before", "ready_made.cpu_ms_per_mb", 1 / 3),
    _less("server CPU per MB, produce 100 B", "produce_100.cpu_ms_per_mb", 1 / 3),
    _less("server CPU per MB, consume 1 KB", "consume_1k.cpu_ms_per_mb", 1 / 3),
    _less("server CPU per MB, consume 100 B", "consume_100.cpu_ms_per_mb", 1 / 3),
    _less("anonymous memory, idle", "memory.idle_mb", 0.1),
    _less("anonymous memory, after load", "memory.loaded_mb", 0.1),
    _less("start-up", "startup.ready_ms", 1 / 8),
    Goal(
        "1,000 idle consumers: p50 beside without them",
        "idle.p50_ms",
        1.2,
        None,
        "less",
        INTERVAL,
        "idle.without_p50_ms",
    ),
    Goal(
        "1,000 idle consumers: p99 beside without them",
        "idle.p99_ms",
        1.5,
        None,
        "less",
        INTERVAL,
        "idle.without_p99_ms",
    ),
    _less("1,000 idle consumers: p99 beside Kafka's with as many", "idle.p99_ms", 1.0),
    Goal("1,000 idle consumers: their memory", "idle.extra_mb", 40, None, "less", against=None, unit="MB"),
    _less("Spark batch read, 200 small partitions", "spark.spark_s", 0.4),
    Goal("1,000 partitions created", "partitions.create_ms", 100, None, "less", against=None, unit="ms"),
    Goal(
        "one-record batches retained: anonymous memory",
        "retained.loaded_mb",
        150,
        None,
        "less",
        against=None,
        unit="MB",
    ),
    Goal(
        "p99 of produce beside a cold reader, sync",
        "cold.p99_ms",
        3.0,
        None,
        "less",
        SYNC,
        "cold.alone_p99_ms",
    ),
    Goal(
        "p99 of produce beside a cold reader",
        "cold.p99_ms",
        3.0,
        None,
        "less",
        INTERVAL,
        "cold.alone_p99_ms",
    ),
)
