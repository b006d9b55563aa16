"""The rows, in groups. `asked`: one that a user would ask for; the others are for `make bench ARGS=--all`."""

from __future__ import annotations

from dataclasses import replace

from benchmarks import bounds
from benchmarks.brokers import BARE, INTERVAL, KAFKA, KAFKA_SYNC, ROCKETMQ, SYNC
from benchmarks.goals import CLIENT, Goal, Group

CPU_BESIDE_BARE = 1.3


def asked(*goals: Goal) -> tuple[Goal, ...]:
    return tuple(replace(goal, asked=True) for goal in goals)


def more(title: str, figure: str, target: float, stretch: float | None = None, *, bound: str = "") -> Goal:
    """A rate beside Kafka's, where the client may be the bound."""
    return Goal(title, figure, target, stretch, bare=CLIENT, bound=bound)


def less(
    title: str, figure: str, target: float, stretch: float | None = None, *, of: str = INTERVAL, against: str = KAFKA,
    bare: float | None = None, bound: str = "",
) -> Goal:  # fmt: skip
    return Goal(title, figure, target, stretch, "less", of, against, bare=bare, bound=bound)


def sync(title: str, figure: str, bound: str = "") -> Goal:
    """Waiting for the disk costs a fifth at most."""
    return Goal(f"{title}, sync beside interval", figure, 0.8, of=SYNC, against=INTERVAL, bound=bound)


def cpu(title: str, figure: str, bound: str) -> Goal:
    return less(title, figure, 1 / 3, bare=CPU_BESIDE_BARE, bound=bound)


def within(title: str, figure: str, target: float, unit: str, *, of: str = INTERVAL, bound: str = "") -> Goal:
    """Compared with nothing."""
    return Goal(title, figure, target, None, "less", of, None, unit, bound=bound)


def own(
    title: str, figure: str, target: float, against: str, *, better: str = "less", of: str = INTERVAL, bound: str = ""
) -> Goal:
    """Compared with another figure of the same broker."""
    return Goal(title, figure, target, None, "more" if better == "more" else "less", of, against, bound=bound)


def rocketmq(title: str, figure: str, target: float, bound: str = "", *, bare: float | None = CLIENT) -> Goal:
    """Beside a RocketMQ, by its own Java client, which may be the bound; neither waits for the disk."""
    return Goal(f"RocketMQ {title}", f"rocketmq.{figure}", target, against=ROCKETMQ, bare=bare, bound=bound)


def rocketmq_less(title: str, figure: str, target: float, bound: str = "", *, bare: float | None = None) -> Goal:
    return replace(rocketmq(title, figure, target, bound, bare=bare), better="less")


def client(title: str, figure: str, target: float) -> Goal:
    """halfmoon.client beside RocketMQ's Java client, at one Halfmoon that does not wait for the disk."""
    title = f"the Python client beside RocketMQ's Java client, {title}"
    return Goal(title, f"clients.python_{figure}", target, against=f"clients.java_{figure}")


def commits(who: str, prefix: str) -> list[Goal]:
    """Kafka's transactions and offset commits, one after the other, by one client."""
    return [
        Goal(f"{who}, transactions of 1,000 records, a second", f"{prefix}_commits.tx_1000_tx_s", 1.0),
        less(f"{who}, a transaction's commit, p50, ms", f"{prefix}_commits.commit_p50_ms", 1.0, bound=bounds.COMMITS),
        less(f"{who}, a transaction's commit, p99, ms", f"{prefix}_commits.commit_p99_ms", 1.0, bound=bounds.COMMITS),
        less(f"{who}, a commit of offsets, p99, ms", f"{prefix}_commits.offsets_p99_ms", 1.0, bound=bounds.COMMITS),
    ]


THROUGHPUT = Group("throughput", "Much at once", (
    *asked(
        more("produce 1 KB, librdkafka, MB/s", "bulk_1k.produce_mb_s", 1.5, 2.5, bound=bounds.CLIENT_1K),
        sync("produce 1 KB, librdkafka, MB/s", "bulk_1k.produce_mb_s", bounds.DISK_SPEED),
        more("produce 100 B, librdkafka, records/s", "bulk_100.produce_rec_s", 1.0, 1.2,
             bound=bounds.PRODUCING_CLIENT),
        more("produce 100 B over 100 partitions, librdkafka, records/s", "spread.rec_s", 1.5,
             bound=bounds.CLIENT_SHARE),
        more("produce 100 B, Java, records/s", "java.rec_s", 1.5, 1.8, bound=bounds.CLIENT_SHARE),
        more("produce 1 KB, batches made before, C, MB/s", "ready_made.mb_s", 1.5, 2.5),
        more("consume 1 KB, librdkafka, MB/s", "bulk_1k.consume_mb_s", 1.0, 1.2, bound=bounds.CONSUMING_CLIENT),
        more("consume 100 B, librdkafka, records/s", "bulk_100.consume_rec_s", 1.0, 1.2,
             bound=bounds.CONSUMING_CLIENT),
        cpu("the broker's CPU for a MB, produce 1 KB, ms", "bulk_1k.produce_cpu_ms_per_mb", bounds.TWO_COPIES),
        cpu("the broker's CPU for a MB, consume 1 KB, ms", "bulk_1k.consume_cpu_ms_per_mb", bounds.ONE_COPY),
    ),
    cpu("the broker's CPU for a MB, batches made before, ms", "ready_made.cpu_ms_per_mb", bounds.TWO_COPIES),
    cpu("the broker's CPU for a MB, produce 100 B, ms", "bulk_100.produce_cpu_ms_per_mb", bounds.FIRST_TOUCH),
    cpu("the broker's CPU for a MB, consume 100 B, ms", "bulk_100.consume_cpu_ms_per_mb", bounds.ONE_COPY),
    sync("produce 1 KB, batches made before, C, MB/s", "ready_made.mb_s", bounds.DISK_SPEED),
    sync("produce 100 B, librdkafka, records/s", "bulk_100.produce_rec_s"),
    sync("produce 100 B over 100 partitions, librdkafka, records/s", "spread.rec_s"),
    sync("produce 100 B, Java, records/s", "java.rec_s", bounds.SYNC_BATCHES),
))  # fmt: skip

SINGLE = Group("latency", "One message at a time", (
    *asked(
        more("one by one, C, requests/s", "one_by_one_c.req_s", 2.0, bound=bounds.WAKING),
        more("one by one, librdkafka flush() each, requests/s", "one_by_one_rdkafka.req_s", 2.0, bound=bounds.WAKING),
        more("one by one, Java batch.size=0, records/s", "one_by_one_java.rec_s", 2.0, bound=bounds.WAKING),
        less("the broker's CPU for a request of 100 B beside the bare loop's, us", "five_in_the_air_c.cpu_us", 1.5, 1.3,
             against=BARE, bound=bounds.A_REQUEST),
        less("end to end, 500 messages/s, p50, ms", "e2e_500.p50_ms", 0.6, 0.5, bare=1 / CLIENT,
             bound=bounds.COLD_CODE),
        less("end to end, 500 messages/s, p99, ms", "e2e_500.p99_ms", 0.7, bare=1 / CLIENT),
        less("end to end, 500 messages/s, p50, sync, beside a Kafka that flushes each message, ms",
             "e2e_500.p50_ms", 0.6, of=SYNC, against=KAFKA_SYNC, bound=bounds.COLD_CODE_AND_DISK),
        less("end to end, 500 messages/s, p50, sync, beside a Kafka that does not, ms",
             "e2e_500.p50_ms", 1.5, of=SYNC, bound=bounds.DISK),
        own("1,000 idle consumers: p99 beside without them, ms", "idle.p99_ms", 1.2, "idle.without_p99_ms",
            bound=bounds.TWO_THOUSAND_FETCHES),
    ),
    less("1,000 idle consumers: p99 beside Kafka's with as many, ms", "idle.p99_ms", 1.0,
         bound=bounds.TWO_THOUSAND_FETCHES),
    own("1,000 idle consumers: p50 beside without them, ms", "idle.p50_ms", 1.2, "idle.without_p50_ms",
        bound=bounds.TWO_THOUSAND_FETCHES),
    within("1,000 idle consumers: their memory", "idle.extra_mb", 40, "MB"),
    less("end to end, one after the other, p50, ms", "e2e.p50_ms", 0.6, 0.5, bare=1 / CLIENT),
    less("end to end, one after the other, p99, ms", "e2e.p99_ms", 0.7, bare=1 / CLIENT, bound=bounds.TAIL),
    less("end to end, one after the other, p50, sync, beside a Kafka that flushes each message, ms", "e2e.p50_ms", 0.6,
         of=SYNC, against=KAFKA_SYNC),
    less("end to end, one after the other, p50, sync, beside a Kafka that does not, ms", "e2e.p50_ms", 1.5, of=SYNC,
         bound=bounds.DISK),
    own("one by one with sync: p50 beside request + fdatasync, ms", "one_by_one_c.p50_ms", 1.5, "disk.floor_ms",
        of=SYNC),
    *(own(f"p99 of produce beside a cold reader, {of}, ms", "cold.p99_ms", 3.0, "cold.alone_p99_ms", of=of,
          bound=bounds.COLD_DISK) for of in (SYNC, INTERVAL)),
))  # fmt: skip

PROCESS = Group("process", "Memory, start and recovery", (
    *asked(
        less("anonymous memory, after load, MB", "memory.loaded_mb", 0.1),
        less("start to first answer, ms", "startup.ready_ms", 1 / 8, bound=bounds.IMPORTS),
        within("ready after a kill, a segment of 1 GiB, the slowest of 50", "kills_recycled.max_ms", 1_000, "ms"),
    ),
    less("anonymous memory, idle, MB", "memory.idle_mb", 0.1),
    *(within(f"ready after a kill, {segment} segment of 1 GiB, the slowest of 50, {of}", f"kills_{segment}.max_ms",
             1_000, "ms", of=of) for segment, of in (("recycled", SYNC), ("fresh", INTERVAL), ("fresh", SYNC))),
    within("1,000 partitions created", "partitions.create_ms", 100, "ms"),
    within("one-record batches retained: anonymous memory", "retained.loaded_mb", 150, "MB"),
))  # fmt: skip

KAFKAS_FEATURES = Group("kafka", "Kafka's transactions, groups and compaction", (
    *asked(
        Goal("Java, transactions of 1 record, a second", "java_commits.tx_1_tx_s", 1.0),
        less("Java, a commit of offsets, p50, ms", "java_commits.offsets_p50_ms", 1.0, bound=bounds.COMMITS),
        less("second member of a KIP-848 group, ms", "joins_consumer.second_ms", 1 / 3),
        less("10 M records compacted: space that is left, MB", "compaction.after_mb", 1.0, bound=bounds.MADE_AHEAD),
    ),
    *commits("Java", "java"),
    Goal("librdkafka, transactions of 1 record, a second", "rdkafka_commits.tx_1_tx_s", 1.0),
    less("librdkafka, a commit of offsets, p50, ms", "rdkafka_commits.offsets_p50_ms", 1.0, bound=bounds.COMMITS),
    *commits("librdkafka", "rdkafka"),
    less("first member of a classic group, ms", "joins_classic.first_ms", 1 / 3),
    less("second member of a classic group, ms", "joins_classic.second_ms", 1 / 3),
    less("first member of a KIP-848 group, ms", "joins_consumer.first_ms", 1 / 3),
    less("10 M records compacted: time until space is back, s", "compaction.cleaned_s", 1.0),
    less("10 M records compacted: p99 of a produce meanwhile, ms", "compaction.beside_p99_ms", 1.0),
    less("10 M records compacted: p99 of a produce meanwhile, times that without", "compaction.p99_times", 1.0,
         bound=bounds.ALONE_FASTER),
))  # fmt: skip

FEATURES = Group("features", "What Kafka has not", (
    *asked(
        own("one record in ten delayed: 100 B, records/s", "delayed.one_in_ten_rec_s", 0.9, "delayed.none_rec_s",
            better="more", bound=bounds.TAKEN_APART),
        within("delay of 1,000 ms: late by, p99", "delays.time_p99_ms", 20, "ms"),
        Goal("half message and commit, librdkafka, a second", "transactions.tx_s", 5_000, 7_168, against=None),
        own("Spark reads a view of one record in a hundred, beside filtering the whole topic, s", "view.view_s", 1 / 5,
            "view.whole_s"),
    ),
    own("Spark reads a view of one record in a hundred, beside filtering the whole topic, MB", "view.view_mb", 1 / 20,
        "view.whole_mb"),
    own("headers act, none used: 1 KB, MB/s", "headers.on_mb_s", 0.9, "headers.off_mb_s", better="more"),
    own("headers act, none used: 1 KB zstd, MB/s", "headers.zstd_on_mb_s", 0.7, "headers.zstd_off_mb_s",
        better="more"),
    own("headers act, none used: 100 B, records/s", "headers.small_on_rec_s", 0.9, "headers.small_off_rec_s",
        better="more"),
    own("one record in ten tagged: 100 B, records/s", "headers.tagged_rec_s", 0.7, "headers.small_off_rec_s",
        better="more"),
    Goal("half message and commit, librdkafka, a second, sync", "transactions.tx_s", 5_000, 7_168, of=SYNC,
         against=None),
    within("delay level 1 s: late by, p50", "delays.level_p50_ms", 5, "ms"),
    within("delay level 1 s: late by, p99", "delays.level_p99_ms", 20, "ms"),
    within("delay of 1,000 ms: late by, p50", "delays.time_p50_ms", 5, "ms"),
    within("delay of 1,000 ms: late by, p50, sync", "delays.time_p50_ms", 5, "ms", of=SYNC),
    within("delay of 1,000 ms: late by, p99, sync", "delays.time_p99_ms", 20, "ms", of=SYNC),
))  # fmt: skip

SPARK = Group("spark", "Spark", (
    *asked(
        less("batch read, 2 M records of 100 B, s", "pipeline.batch_s", 0.8, bare=1 / CLIENT,
             bound=bounds.SPARK_ALONE),
        less("stream into Parquet, 2 M records of 100 B, s", "pipeline.stream_s", 0.8, bare=1 / CLIENT,
             bound=bounds.SPARK_ALONE),
        less("batch read, 200 small partitions, s", "spark.spark_s", 0.4),
    ),
    less("sink, 500,000 records of 100 B, written and read back, s", "pipeline.sink_s", 1.0),
    own("read_topic beside format(kafka), s", "pipeline.read_s", 1.05, "pipeline.plain_s"),
    own("read_topic beside format(kafka), with headers, s", "pipeline.read_headers_s", 1.05,
        "pipeline.plain_headers_s"),
))  # fmt: skip

ROCKETMQS = Group("rocketmq", "RocketMQ's Java client", (
    *asked(
        rocketmq("sync, 8 threads, 100 B, messages/s", "sync_8_rec_s", 1.2),
        rocketmq("async, 100 B, messages/s", "async_rec_s", 1.2, bounds.ONE_SENDER),
        rocketmq("batches of 100, 8 threads, messages/s", "batch_8_rec_s", 1.2, bounds.MANY_PRODUCERS),
        rocketmq("push consume, 32 at a time, 100 B, messages/s", "consume_32_rec_s", 1.0, bounds.FLOW_CONTROL),
        rocketmq("SQL92 filter, 1 in 10 matches, matches/s", "sql_rec_s", 0.7, bare=None),
        rocketmq_less("end to end, 200 messages/s, p50, ms", "e2e_200_p50_ms", 0.5, bounds.SLEEPING_CLIENT,
                      bare=1 / CLIENT),
        rocketmq("transactions, 8 threads, a second", "tx_8_s", 1.0, bounds.HALF_AND_COMMIT),
    ),
    rocketmq("sync, 8 threads, 1 KB, messages/s", "sync_8_1k_rec_s", 1.2),
    rocketmq("async, 1 KB, messages/s", "async_1k_rec_s", 1.2, bounds.ONE_SENDER),
    rocketmq("batches of 100, 1 thread, messages/s", "batch_1_rec_s", 1.2, bounds.MANY_PRODUCERS),
    rocketmq("push consume, one at a time, 100 B, messages/s", "consume_1_rec_s", 1.0, bounds.FLOW_CONTROL),
    rocketmq("push consume, one at a time, 1 KB, messages/s", "consume_1_1k_rec_s", 1.0, bounds.FLOW_CONTROL),
    rocketmq("push consume, 32 at a time, 1 KB, messages/s", "consume_32_1k_rec_s", 1.0, bounds.FLOW_CONTROL),
    rocketmq("tag filter, 1 in 10 matches, matches/s", "tag_rec_s", 0.7, bare=None),
    rocketmq("SQL92 filter of three conditions, matches/s", "sql_three_rec_s", 0.7, bare=None),
    rocketmq_less("end to end, 200 messages/s, p99, ms", "e2e_200_p99_ms", 0.7, bare=1 / CLIENT),
    rocketmq_less("end to end, 2,000 messages/s, p50, ms", "e2e_2000_p50_ms", 0.5, bare=1 / CLIENT),
    rocketmq_less("end to end, 2,000 messages/s, p99, ms", "e2e_2000_p99_ms", 0.7, bare=1 / CLIENT),
    rocketmq("transactions, 1 thread, a second", "tx_1_s", 1.0, bounds.HALF_AND_COMMIT),
    rocketmq_less("delay level 1 s: late by, p50, ms", "level_p50_ms", 0.2),
    rocketmq_less("delay level 1 s: late by, p99, ms", "level_p99_ms", 0.2),
    rocketmq_less("delay of 2,000 ms: late by, p50, ms", "time_p50_ms", 0.2),
    rocketmq_less("delay of 2,000 ms: late by, p99, ms", "time_p99_ms", 0.2),
    rocketmq_less("start-up, ms", "ready_ms", 0.2),
    rocketmq_less("anonymous memory after load, MB", "loaded_mb", 0.2),
    client("sync, 1 thread, 100 B, messages/s", "sync_1_rec_s", 0.5),
    client("sync, 8 threads, 100 B, messages/s", "sync_8_rec_s", 0.5),
    client("async, 100 B, messages/s", "async_rec_s", 0.7),
    client("push consume of a million, one at a time, messages/s", "consume_1_rec_s", 0.3),
    client("push consume of a million, 32 at a time, messages/s", "consume_32_rec_s", 0.3),
))  # fmt: skip

GROUPS = (THROUGHPUT, SINGLE, PROCESS, KAFKAS_FEATURES, FEATURES, SPARK, ROCKETMQS)
