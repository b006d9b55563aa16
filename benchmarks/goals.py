"""What is to be reached. Figures are named by the cells that yield them: `cell.figure`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from benchmarks.brokers import INTERVAL, KAFKA, ROCKETMQ, SYNC

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


def _rocketmq(title: str, figure: str, target: float, bound: str = "", *, less: bool = False) -> Goal:
    """Beside a RocketMQ, by its own Java client; neither waits for the disk."""
    return Goal(
        f"RocketMQ {title}",
        f"rocketmq.{figure}",
        target,
        None,
        "less" if less else "more",
        against=ROCKETMQ,
        bound=bound,
    )


def _client(title: str, figure: str, target: float) -> Goal:
    """halfmoon.client beside RocketMQ's Java client, at one Halfmoon that does not wait for the disk."""
    title = f"the Python client beside RocketMQ's Java client, {title}"
    return Goal(title, f"python_client.{figure}", target, against=f"java_client.{figure}")


def _less(
    title: str, figure: str, target: float, stretch: float | None = None, of: str = INTERVAL, bound: str = ""
) -> Goal:
    return Goal(title, figure, target, stretch, "less", of, bound=bound)


def _commits(client: str, prefix: str) -> list[Goal]:
    """Kafka's transactions and offset commits, one after the other, by one client."""
    return [
        Goal(f"{client}, transactions of 1 record, a second", f"commits.{prefix}_tx_1_tx_s", 1.0),
        Goal(f"{client}, transactions of 1,000 records, a second", f"commits.{prefix}_tx_1000_tx_s", 1.0),
        _less(f"{client}, a transaction's commit, p50", f"commits.{prefix}_commit_p50_ms", 1.0, bound=COMMITS),
        _less(f"{client}, a transaction's commit, p99", f"commits.{prefix}_commit_p99_ms", 1.0, bound=COMMITS),
        _less(f"{client}, a commit of offsets, p50", f"commits.{prefix}_offsets_p50_ms", 1.0, bound=COMMITS),
        _less(f"{client}, a commit of offsets, p99", f"commits.{prefix}_offsets_p99_ms", 1.0, bound=COMMITS),
    ]


CLIENT_1K = """\
Memory that the virtual machine touches for the first time: alone on the machine the same load reached 710 MB/s with
the page cache's memory touched before and 440 without, at the same 0.3 ms of user time for a MB. Tried: a broker
that throws the batches away (890 MB/s, the client's limit), and counting the reads: there are 2.5 for a MB already."""

TWO_COPIES = """\
The kernel's copies. A bare loop of recv, CRC-32C and pwritev, with an fdatasync every 64 MB, takes 0.40 to 0.44 ms
for a MB: 0.12 receiving, 0.05 checksum, 0.19 writing, 0.07 syncing. The broker adds 0.15 of Python. Tried in that
loop: huge pages (0.32 instead of 0.35 without syncs), steps of 64 KB (0.33), steps that are written at once (0.65),
receiving into the mapped file (0.44), eight buffers instead of one (0.35)."""

SYNC_BATCHES = """\
The processor: the Java producer and the broker keep both cores busy, and a sync costs CPU that `flush: interval`
saves. The disk is not it: a bare loop with as much in the air (80 KB) writes and syncs 170 MB/s, the producer gets
30. Tried: the sync in the loop for all up to 256 KB (298,000 to 333,000 records a second, broker CPU 2.2 to 1.5 s;
in use where the disk is quick), segments filled with zeroes ahead as well (348,000 twice and 244,000 once, and every
byte is written twice), a pause of 1 ms between syncs (-8 %)."""

WAKING = """\
Waking the client, and Python: 28 us for a Produce. Where the answer comes later than some 5 us, the client's
processor sleeps, and its waking takes about 20 us on such a machine: an echo server with uvloop that computes for 28
us before each answer reaches 15,000 a second on a quiet machine. Tried: looking for the next request without
sleeping (9,300 to 14,200 a second), the turn at once instead of at the end of a round (10,600 to 11,400), less work
in a turn (-1 us). A Produce of about 17 us would take a compiled request path."""

COMMITS = """\
Waking the client, which is most of it for both brokers: from run to run the same figure was 0.75 and 0.98x (Java's
offsets, p50), 0.47 and 1.08x (librdkafka's transactions, p99). Tried, and in use: an answer to OffsetCommit that is
written by hand (45 to 37 us for a commit), looking for the next request for 120 us without sleeping instead of 60. A
request decoder of its own, instead of the one by schema, would be another 8 us."""

TAIL = """\
Varies with the machine: the runs before this one had 0.49, 0.61 and 0.61x. Tried, and in use: looking for garbage
seldom, the turn at once instead of at the end of a round, looking for the next request without sleeping."""

DISK = """\
The fdatasync, which Kafka does not do: 0.13 ms one after the other, 0.22 ms at 500 a second on this disk. With
`flush: interval` and that much added it would be 1.3 to 1.4x. Tried in the broker: the fdatasync in the loop (p50 of
a ping-pong 0.305 to 0.237 ms), the turn at once (0.257 to 0.251 ms). Tried outside it: files filled with zeroes
ahead, and O_DSYNC (no change)."""

ONE_COPY = """\
The kernel's copy into the socket. A bare loop that sends slices of a mapped file takes 0.22 to 0.25 ms for a MB, of
the 0.16 to 0.26 that a third of Kafka's leaves from run to run. Tried in that loop: sendfile (0.50), pread and send
(0.34), mapping the pages ahead (0.23), read buffers that are used again (0.45 instead of 0.51). Tried in the broker:
slices of older data too, where mincore says that it is in memory (0.23 to 0.30 instead of 0.31 to 0.37; in use), a
send buffer of 4 MiB (0.25 instead of 0.30). Where some of it is not in memory it is copied once more; on this machine
something takes an eighth of all clean page cache away every five seconds, without any need."""

CLIENT_SHARE = """\
The client: both cores are busy. A broker that throws the batches away and answers at once gets 1,060,000 records a
second over 100 partitions and 533,000 from the Java producer, where Halfmoon gets 1,070,000 and 430,000 to 470,000.
Tried besides: answers that leave 1 to 8 ms later, so that batches are larger (910,000 to 1,090,000 over 100
partitions; 275,000 and less from the Java producer), and a loop that never stays awake (no change)."""

IMPORTS = """\
Python's start and imports: 220 ms where their files are in memory; in this run, which fills memory with other things,
more. Tried: kafka-python's clients are not imported (-20 ms), nor its messages that the broker does not have (-6 ms),
typer without pydantic (-60 ms), commands imported when they are used, fewer dataclasses (-13 ms). 35 ms of the rest are
kafka-python's message classes, 45 the command line."""

DISK_SPEED = """\
The disk, and memory touched for the first time: alone on the machine, `flush: sync` took 700 MB/s of 710 from
librdkafka and 1,160 of 1,840 for batches made before, then less with every repetition, as the page cache grew.
Tried: segments filled with zeroes ahead (1,150 instead of 1,160 MB/s, 440 instead of 700), and in a bare loop with 5
MB in the air two syncs at a time (+6 %) and starting to write right after each batch (sync_file_range: 0.6 to 1.2x)."""

FIRST_TOUCH = """\
Memory touched for the first time: three loads one after the other in the same broker took 0.3 to 0.45 ms of user
time for a MB, and 0.56, 1.7 and 2.7 ms of system time. Tried: touching 5 GB before (helps the first load only: the
machine's host takes back what is free), filling the page cache from a file before (in use here)."""

COLD_DISK = """\
Memory: who writes has to make room first. Tried: no more than a quarter of it left to what was read from the disk
(p99 1.1 to 2.3 instead of 1.4 to 6.4 ms; in use), nothing of it left (0.9 to 2.1), reads in steps of 128 KB (2 to
3.7)."""

PRODUCING_CLIENT = """\
The client: a broker that throws the batches away and answers at once gets 1.60 million records a second, Halfmoon 1.35
to 1.45 beside it. Tried: receive buffers of 4 MiB (1.37 and 1.46 instead of 1.45 and 1.35), of 256 KiB (1.38), answers
that leave 3 ms later (1.41)."""

CONSUMING_CLIENT = """\
The client: the broker takes a quarter of a core meanwhile. Tried, seven times each in turn: slices of older data too
(738 instead of 742 MB/s, with less CPU in the broker), send buffers of 4 MiB (746) and 512 KiB (733)."""

TWO_THOUSAND_FETCHES = """\
2,000 fetches a second, a fifth of the loop with their reads and writes. Tried: looking for garbage seldom (p99 3.5
to 1.8 ms; in use), the turn of who sends alone before others are read (1.8 to 1.3 ms; in use; without consumers it
fell from 0.95 to 0.72), waking at most eight, four or two at a time (no change), and consumers that are spread
evenly (p99 the same, p50 higher). Less would take a cheaper fetch: 16 us to park it and 10 us to answer it, in
Python."""


MADE_AHEAD = """\
Room that is made ahead: the segment that is being written, and the next one, have all their blocks from the beginning
(64 MiB each in this cell), so that no append waits for the file system, or finds the disk full in the middle of a
segment. What compaction leaves are 120 MB. Tried: segments of 16 MiB leave 152 MB. Not tried: blocks in steps, and no
next segment before the present one is half full (183 MB), and then none may be there when it is needed."""

ALONE_FASTER = """\
What it is compared with: a produce without the cleaner has a p99 of 0.7 ms here and of 4 ms with Kafka. Beside the
cleaner it is a quarter of Kafka's. Tried: the cleaner in a process of its own with the lowest priority (p99 of a loop's
lateness beside two busy processes 8.1 ms), with SCHED_IDLE (a little less, but on a busy machine it would never clean),
offering its core after each batch (4.1 ms; in use), removing files in a thread (stalls of 200 ms before)."""


HALF_AND_COMMIT = """\
Python: the broker keeps a core busy for 98 %, 220 us for a half message and its commit, while the Java client takes a
fifth of the other. Of that the half takes 125: taken apart, its names checked, put together again without TRAN_MSG and
appended; the commit 62. Tried, from 312 us: ends that come together as one batch (204), the place of a half message
learnt when it is appended instead of read from the log (184 of eight together), frames that are dealt with not read
again when they are due, a batch of one record inspected without walking it. 140 us would take a compiled path."""

MANY_PRODUCERS = """\
The cores, which broker and client share: the broker takes 3.7 us of CPU for a message in a batch of 100, of which 0.7
are the record, 1.1 were its UNIQ_KEY in the index and are 0.5 now. From run to run 0.76 to 1.19x. Tried: remembered
texts (from 4.4 us), records made of slices that are the same but for UNIQ_KEY and body, hashes in one go."""

ONE_SENDER = """\
The broker: 31 to 38 us of CPU for a message, which is the time that 25,000 to 30,000 a second leave. From run to run
0.83 to 1.51x. Tried: properties remembered as headers (from 70 us), UNIQ_KEYs looked for when they are appended."""

FLOW_CONTROL = """\
The client's flow control, and the same cores: a consumer that has 1,000 messages of a queue in its cache pulls again
after 50 ms, which answers that come soon run into: the broker takes 27 % of a core meanwhile. From run to run 0.66 to
0.80x. Tried: windows of 64 and 256 KiB, answers of fewer messages."""

SLEEPING_CLIENT = """\
Waking: at 200 messages a second every processor sleeps in between, and of the client's threads four are woken for a
message: at 2,000 a second the same way takes 0.44 ms. Tried: a loop that looks for 8 ms without sleeping (0.51 instead
of 0.88 ms, and a core is busy with 200 messages a second), consumers woken before the producer is answered (1.05)."""


GOALS: tuple[Goal, ...] = (
    *_throughput("produce 1 KB, MB/s", "produce_1k.mb_s", 1.5, 2.5, CLIENT_1K, DISK_SPEED),
    *_throughput("produce 1 KB, batches made before, MB/s", "ready_made.mb_s", 1.5, 2.5, bound_sync=DISK_SPEED),
    *_throughput("produce 100 B, records/s", "produce_100.rec_s", 1.0, 1.2, PRODUCING_CLIENT),
    *_throughput("produce 100 B over 100 partitions, records/s", "spread.rec_s", 1.5, None, CLIENT_SHARE),
    *_throughput(
        "Java ProducerPerformance 100 B, records/s", "java.rec_s", 1.3, 1.8, CLIENT_SHARE, bound_sync=SYNC_BATCHES
    ),
    Goal("consume 1 KB, MB/s", "consume_1k.mb_s", 1.0, 1.2, bound=CONSUMING_CLIENT),
    Goal("consume 100 B, records/s", "consume_100.rec_s", 1.0, 1.2, bound=CONSUMING_CLIENT),
    Goal("one by one, plain socket, requests/s", "single_raw.req_s", 1.3, 2.0, bound=WAKING),
    Goal("one by one, librdkafka flush() each, requests/s", "single_rdkafka.req_s", 1.3, 2.0, bound=WAKING),
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
    _less("end to end, one after the other, p99", "e2e.p99_ms", 0.7, bound=TAIL),
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
    _less("Spark batch read, 2 M records of 100 B", "pipeline.batch_s", 1.0),
    _less("Spark stream into Parquet, 2 M records of 100 B", "pipeline.stream_s", 1.0),
    _less("Spark sink, 500,000 records of 100 B, written and read back", "pipeline.sink_s", 1.0),
    Goal("read_topic beside format(kafka)", "pipeline.read_s", 1.05, None, "less", INTERVAL, "pipeline.bare_s"),
    Goal(
        "read_topic beside format(kafka), with headers",
        "pipeline.read_headers_s",
        1.05,
        None,
        "less",
        INTERVAL,
        "pipeline.bare_headers_s",
    ),
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
    *(
        Goal(
            f"ready after a kill, {segment} segment of 1 GiB, the slowest of 50, ms{', sync' * (of == SYNC)}",
            f"kills.{segment}_max_ms",
            1_000,
            better="less",
            of=of,
            against=None,
            unit="ms",
        )
        for segment in ("recycled", "fresh")
        for of in (INTERVAL, SYNC)
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
        bound=COLD_DISK,
    ),
    Goal(
        "Spark reads a view of one record in a hundred: time, beside filtering the whole topic",
        "view.view_s",
        1 / 5,
        None,
        "less",
        INTERVAL,
        "view.whole_s",
    ),
    Goal(
        "Spark reads a view of one record in a hundred: bytes, beside filtering the whole topic",
        "view.view_mb",
        1 / 20,
        None,
        "less",
        INTERVAL,
        "view.whole_mb",
    ),
    Goal("headers act, none used: 1 KB, MB/s", "headers.on_mb_s", 0.9, against="headers.off_mb_s"),
    Goal("headers act, none used: 1 KB zstd, MB/s", "headers.zstd_on_mb_s", 0.7, against="headers.zstd_off_mb_s"),
    Goal("headers act, none used: 100 B, records/s", "headers.small_on_rec_s", 0.9, against="headers.small_off_rec_s"),
    Goal(
        "one record in ten delayed: 100 B, records/s", "headers.delayed_rec_s", 0.7, against="headers.small_off_rec_s"
    ),
    Goal("one record in ten tagged: 100 B, records/s", "headers.tagged_rec_s", 0.7, against="headers.small_off_rec_s"),
    Goal("delay level 1 s: late by, p50", "delays.level_p50_ms", 5, None, "less", against=None, unit="ms"),
    Goal("delay level 1 s: late by, p99", "delays.level_p99_ms", 20, None, "less", against=None, unit="ms"),
    Goal("delay of 1,000 ms: late by, p50", "delays.time_p50_ms", 5, None, "less", against=None, unit="ms"),
    Goal("delay of 1,000 ms: late by, p99", "delays.time_p99_ms", 20, None, "less", against=None, unit="ms"),
    Goal("delay of 1,000 ms: late by, p50, sync", "delays.time_p50_ms", 5, None, "less", SYNC, None, unit="ms"),
    Goal("delay of 1,000 ms: late by, p99, sync", "delays.time_p99_ms", 20, None, "less", SYNC, None, unit="ms"),
    *_commits("Java", "java"),
    *_commits("librdkafka", "rdkafka"),
    _less("first member of a classic group", "joins.classic_first_ms", 1 / 3),
    _less("second member of a classic group", "joins.classic_second_ms", 1 / 3),
    _less("first member of a KIP-848 group", "joins.consumer_first_ms", 1 / 3),
    _less("second member of a KIP-848 group", "joins.consumer_second_ms", 1 / 3),
    _less("10 M records compacted: time until space is back", "compaction.cleaned_s", 1.0),
    _less("10 M records compacted: space that is left", "compaction.after_mb", 1.0, bound=MADE_AHEAD),
    _less("10 M records compacted: p99 of a produce meanwhile", "compaction.beside_p99_ms", 1.0),
    _less(
        "10 M records compacted: p99 of a produce meanwhile, times that without",
        "compaction.p99_times",
        1.0,
        bound=ALONE_FASTER,
    ),
    Goal("half message and commit, a second", "transactions.tx_s", 5_000, 7_168, against=None),
    Goal("half message and commit, a second, sync", "transactions.tx_s", 5_000, 7_168, of=SYNC, against=None),
    _rocketmq("sync, 8 threads, 100 B, messages/s", "sync_8_rec_s", 1.0),
    _rocketmq("sync, 8 threads, 1 KB, messages/s", "sync_8_1k_rec_s", 1.0),
    _rocketmq("async, 100 B, messages/s", "async_rec_s", 1.0, ONE_SENDER),
    _rocketmq("async, 1 KB, messages/s", "async_1k_rec_s", 1.0, ONE_SENDER),
    _rocketmq("batches of 100, 1 thread, messages/s", "batch_1_rec_s", 1.0),
    _rocketmq("batches of 100, 8 threads, messages/s", "batch_8_rec_s", 1.0, MANY_PRODUCERS),
    _rocketmq("push consume, one at a time, 100 B, messages/s", "consume_1_rec_s", 0.7),
    _rocketmq("push consume, 32 at a time, 100 B, messages/s", "consume_32_rec_s", 0.7, FLOW_CONTROL),
    _rocketmq("push consume, one at a time, 1 KB, messages/s", "consume_1_1k_rec_s", 0.7, FLOW_CONTROL),
    _rocketmq("push consume, 32 at a time, 1 KB, messages/s", "consume_32_1k_rec_s", 0.7, FLOW_CONTROL),
    _rocketmq("tag filter, 1 in 10 matches, matches/s", "tag_rec_s", 0.7),
    _rocketmq("SQL92 filter, 1 in 10 matches, matches/s", "sql_rec_s", 0.7),
    _rocketmq("SQL92 filter of three conditions, matches/s", "sql_three_rec_s", 0.7),
    _rocketmq("end to end, 200 messages/s, p50", "e2e_200_p50_ms", 0.5, SLEEPING_CLIENT, less=True),
    _rocketmq("end to end, 200 messages/s, p99", "e2e_200_p99_ms", 0.7, less=True),
    _rocketmq("end to end, 2,000 messages/s, p50", "e2e_2000_p50_ms", 0.5, less=True),
    _rocketmq("end to end, 2,000 messages/s, p99", "e2e_2000_p99_ms", 0.7, less=True),
    _rocketmq("transactions, 1 thread, a second", "tx_1_s", 0.7, HALF_AND_COMMIT),
    _rocketmq("transactions, 8 threads, a second", "tx_8_s", 0.7, HALF_AND_COMMIT),
    _rocketmq("delay level 1 s: late by, p50", "level_p50_ms", 0.2, less=True),
    _rocketmq("delay level 1 s: late by, p99", "level_p99_ms", 0.2, less=True),
    _rocketmq("delay of 2,000 ms: late by, p50", "time_p50_ms", 0.2, less=True),
    _rocketmq("delay of 2,000 ms: late by, p99", "time_p99_ms", 0.2, less=True),
    _rocketmq("start-up", "ready_ms", 0.2, less=True),
    _rocketmq("anonymous memory after load", "loaded_mb", 0.2, less=True),
    _client("sync, 1 thread, 100 B, messages/s", "sync_1_rec_s", 0.5),
    _client("sync, 8 threads, 100 B, messages/s", "sync_8_rec_s", 0.5),
    _client("async, 100 B, messages/s", "async_rec_s", 0.7),
    _client("push consume of a million, one at a time, messages/s", "consume_1_rec_s", 0.3),
    _client("push consume of a million, 32 at a time, messages/s", "consume_32_rec_s", 0.3),
)
