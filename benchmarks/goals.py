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
    bound: str = ""
    """What bounds it, and what was tried: for the page, where the target is missed."""

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


def _throughput(
    title: str, figure: str, target: float, stretch: float | None, bound: str = "", bound_sync: str = ""
) -> list[Goal]:
    """Beside Kafka without waiting for the disk; and waiting for it costs a fifth at most."""
    return [
        Goal(title, figure, target, stretch, bound=bound),
        Goal(f"{title}, sync beside interval", figure, 0.8, of=SYNC, against=INTERVAL, bound=bound_sync),
    ]


def _less(
    title: str, figure: str, target: float, stretch: float | None = None, of: str = INTERVAL, bound: str = ""
) -> Goal:
    return Goal(title, figure, target, stretch, "less", of, bound=bound)


CLIENT_1K = """\
Probably the client: if both cores are busy, it takes about 2.2 ms of CPU for a MB, and a broker that cost nothing
would reach about 1.6x. Nothing was tried but counting the reads: there are 2.5 for a MB already."""

TWO_COPIES = """\
Mostly the kernel's copies from the socket and into the page cache: 0.45 ms for a MB; Python and the checksum take 0.12
to 0.2. No way to less was tried."""

SYNC_BATCHES = """\
The broker takes two to three times the CPU of `flush: interval` for the same records; why was not found out. Tried:
the sync in the loop for up to 128 KB (no change), segments filled with zeroes ahead (+10 % in two of three tries, less
in the third), a pause of 1 ms between syncs (-8 %)."""

WAKING = """\
Waking the client. Where the answer comes later than some 5 us, the client's processor sleeps, and its waking takes
about 20 us on such a machine: an echo server with uvloop that computes for 28 us before each answer, which is what
a Produce costs here, reaches 15,000 a second. Tried: looking for the next request without sleeping (9,300 to 14,200
a second), and less work in a turn (-1 us of 28). Reaching 1.3x would take a Produce of about 17 us."""

DISK = """\
The fdatasync, which Kafka does not do: 0.13 ms one after the other, 0.22 ms at 500 a second on this disk. With
`flush: interval` and that much added it would be 1.3 to 1.4x. Tried in the broker: the fdatasync in the loop (p50 of a
ping-pong 0.305 to 0.237 ms). Tried outside it only: files filled with zeroes ahead, and O_DSYNC (no change)."""

ONE_COPY = """\
Probably the kernel's copy into the socket. Nothing was tried here; an early prototype gained nothing by sendfile."""

CLIENT_SHARE = """\
Probably the client: over 100 partitions the broker takes a fifth of a core, Kafka 0.8. Nothing was tried to raise it.
A full run of three repetitions on the same day reached 1.39x over 100 partitions and 1.22x for Java."""

IMPORTS = """\
Python's start and imports. Tried: kafka-python's clients are not imported (-20 ms), typer without pydantic (-60 ms),
commands imported when they are used."""

DISK_SPEED = """\
Probably the disk, which took 600 to 1,080 MB/s in these cells; what `flush: interval` wrote last is still in the page
cache when the client is done. Nothing was tried."""

FIRST_TOUCH = """\
Varies: 0.73 to 2.6 ms for a MB in the repetitions of one day, probably with the first touch of memory. Nothing was
tried."""

COLD_DISK = """\
Varies: the two repetitions were 6 and 65 ms; in an earlier run of the same day the median of three was 3.5 ms. Why was
not looked into."""

CLIENT_100 = """\
The client: the broker takes 5 % of a core meanwhile, and the same consumer's figures vary by a third from run to
run, against both brokers."""

TWO_THOUSAND_FETCHES = """\
2,000 fetches a second, a tenth of a core. It is the broker's loop: with these consumers at another broker on the same
machine p99 stayed where it was. Tried: waking at most eight at a time (no change), and consumers that are spread
evenly instead of in twenties (p99 the same, p50 higher)."""


GOALS: tuple[Goal, ...] = (
    *_throughput("produce 1 KB, MB/s", "produce_1k.mb_s", 1.5, 2.5, CLIENT_1K, DISK_SPEED),
    *_throughput("produce 1 KB, batches made before, MB/s", "ready_made.mb_s", 1.5, 2.5, bound_sync=DISK_SPEED),
    *_throughput("produce 100 B, records/s", "produce_100.rec_s", 1.0, 1.2),
    *_throughput("produce 100 B over 100 partitions, records/s", "spread.rec_s", 1.5, None, CLIENT_SHARE),
    *_throughput(
        "Java ProducerPerformance 100 B, records/s", "java.rec_s", 1.3, 1.8, CLIENT_SHARE, bound_sync=SYNC_BATCHES
    ),
    Goal("consume 1 KB, MB/s", "consume_1k.mb_s", 1.0, 1.2),
    Goal("consume 100 B, records/s", "consume_100.rec_s", 1.0, 1.2, bound=CLIENT_100),
    Goal("one by one, plain socket, requests/s", "single_raw.req_s", 1.3, 2.0, bound=WAKING),
    Goal("one by one, librdkafka flush() each, requests/s", "single_rdkafka.req_s", 1.3, 2.0),
    Goal("one by one, Java batch.size=0, records/s", "single_java.rec_s", 1.3, 2.0, bound=WAKING),
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
    _less("end to end, 500 messages/s, p50, sync", "e2e_500.p50_ms", 1.2, of=SYNC, bound=DISK),
    _less("end to end, one after the other, p50", "e2e.p50_ms", 0.7, 0.5),
    _less("end to end, one after the other, p99", "e2e.p99_ms", 0.7),
    _less("end to end, one after the other, p50, sync", "e2e.p50_ms", 1.2, of=SYNC, bound=DISK),
    _less("server CPU per MB, produce 1 KB", "produce_1k.cpu_ms_per_mb", 1 / 3, bound=TWO_COPIES),
    _less("server CPU per MB, produce 1 KB, batches made before", "ready_made.cpu_ms_per_mb", 1 / 3, bound=TWO_COPIES),
    _less("server CPU per MB, produce 100 B", "produce_100.cpu_ms_per_mb", 1 / 3, bound=FIRST_TOUCH),
    _less("server CPU per MB, consume 1 KB", "consume_1k.cpu_ms_per_mb", 1 / 3, bound=ONE_COPY),
    _less("server CPU per MB, consume 100 B", "consume_100.cpu_ms_per_mb", 1 / 3, bound=ONE_COPY),
    _less("anonymous memory, idle", "memory.idle_mb", 0.1),
    _less("anonymous memory, after load", "memory.loaded_mb", 0.1),
    _less("start-up", "startup.ready_ms", 1 / 8, bound=IMPORTS),
    Goal(
        "1,000 idle consumers: p50 beside without them",
        "idle.p50_ms",
        1.2,
        None,
        "less",
        INTERVAL,
        "idle.without_p50_ms",
        bound=TWO_THOUSAND_FETCHES,
    ),
    Goal(
        "1,000 idle consumers: p99 beside without them",
        "idle.p99_ms",
        1.5,
        None,
        "less",
        INTERVAL,
        "idle.without_p99_ms",
        bound=TWO_THOUSAND_FETCHES,
    ),
    _less("1,000 idle consumers: p99 beside Kafka's with as many", "idle.p99_ms", 1.0, bound=TWO_THOUSAND_FETCHES),
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
        bound=COLD_DISK,
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
