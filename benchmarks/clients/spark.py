"""Spark's reads and writes: of many small partitions, of a view beside its source, and through halfmoon.pipeline."""

from __future__ import annotations

import re
import tempfile
import time
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.admin import NewTopic  # type: ignore[attr-defined]

from benchmarks.clients import bulk, topics
from halfmoon.pipeline import read_stream, read_topic, session, stop, write_topic
from halfmoon.pipeline.ingest import ingest


def spark_read(bootstrap: str, topic: str, partitions: int, records: int) -> dict[str, float]:
    """Read everything with Spark's default options, on two cores, after a small read that warms the JVM up."""
    for name, count in ((topic, partitions), (f"{topic}-warm", 2)):
        topics.create(bootstrap, name, count)
        _fill(bootstrap, name, count, records)
    spark = session(app_name="halfmoon-bench", cores=2)
    try:
        _read(spark, bootstrap, f"{topic}-warm", 2 * records)
        begun = time.perf_counter()
        _read(spark, bootstrap, topic, partitions * records)
        return {"spark_s": time.perf_counter() - begun}
    finally:
        stop(spark)


def _fill(bootstrap: str, topic: str, partitions: int, records: int) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "acks": 1})
    for number in range(partitions * records):
        producer.produce(topic, b"x" * 100, partition=number % partitions)
    if producer.flush(30):
        raise TimeoutError("not all records were acknowledged")


def _read(spark: Any, bootstrap: str, topic: str, expected: int) -> None:
    reader = spark.read.format("kafka").option("kafka.bootstrap.servers", bootstrap).option("subscribe", topic)
    rows, size = reader.load().selectExpr("count(*)", "sum(length(value))").collect()[0]
    if (rows, size) != (expected, expected * 100):
        raise RuntimeError(f"Spark read {rows} rows of {size} bytes from {topic}, not {expected}")


PIPELINE_PARTITIONS = 2
PIPELINE_BYTES = 100
COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp")
WITH_HEADERS = (*COLUMNS, "headers")
STREAMED = ("partition", "offset", "timestamp", "cast(value AS STRING) AS value")


def spark_pipeline(
    _: str, brokers: Mapping[str, str], only_read: Sequence[str], topic: str, records: int, written: int, rounds: int
) -> dict[str, float]:
    """Through halfmoon.pipeline: a batch read, a stream into Parquet, and a write that is read back (not at those that
    are `only_read`), by one JVM at each broker (name → HOST:PORT) in turn. Seconds, each named ROUND.BROKER.WHAT, after
    one round that warms the JVM up. Those that are only read have `alone_…` beside them: the same with Parquet files in
    place of a broker, which is Spark's own work.

    `plain_s` is the batch read through `format("kafka")` alone, in turn with `read_s` and with the same columns;
    `read_headers_s` and `plain_headers_s` the same with headers.
    """
    for bootstrap in brokers.values():
        bulk.produce(bootstrap, topic, PIPELINE_BYTES, records, PIPELINE_PARTITIONS)
    spark = session(app_name="halfmoon-bench", cores=2)
    taken: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        filled = f"{folder}/filled"
        try:
            read_topic(spark, topic, bootstrap=next(iter(brokers.values()))).select(*COLUMNS).write.parquet(filled)
            for number in range(-1, rounds):
                at = number % len(brokers)
                places = list(brokers.items())
                for name, bootstrap in places[at:] + places[:at]:
                    own = f"{folder}/{number}-{name}"
                    steps = _steps(spark, bootstrap, topic, own, number, records)
                    if name in only_read:
                        steps += _alone(spark, filled, f"{own}-alone", records, written)
                    else:
                        steps.append(("sink", partial(_written, spark, bootstrap, f"{topic}-sink-{number}", written)))
                    for what, step in steps:
                        begun = time.perf_counter()
                        step()
                        if number >= 0:
                            taken[f"{number}.{name}.{what}_s"] = time.perf_counter() - begun
        finally:
            stop(spark)
    return taken


Steps = list[tuple[str, Callable[[], object]]]


def _steps(spark: Any, bootstrap: str, topic: str, folder: str, number: int, records: int) -> Steps:
    def plain(columns: tuple[str, ...]) -> Any:
        reader = spark.read.format("kafka").option("kafka.bootstrap.servers", bootstrap).option("subscribe", topic)
        return reader.option("includeHeaders", str("headers" in columns).lower()).load().select(*columns)

    def ours(columns: tuple[str, ...]) -> Any:
        return read_topic(spark, topic, bootstrap=bootstrap).select(*columns)

    reads: Steps = [("read", lambda: _drained(ours(COLUMNS))), ("plain", lambda: _drained(plain(COLUMNS)))]
    reads_headers: Steps = [
        ("read_headers", lambda: _drained(ours(WITH_HEADERS))),
        ("plain_headers", lambda: _drained(plain(WITH_HEADERS))),
    ]
    stream = read_stream(spark, topic, bootstrap=bootstrap).selectExpr(*STREAMED)
    # In turn, and each as often first as the other: what comes second finds a warmer machine.
    turn = 1 if number % 2 else -1
    return [
        *reads[::turn], *reads_headers[::turn],
        ("batch", lambda: _counted(ours(COLUMNS), records)),
        ("stream", lambda: _streamed(spark, stream, folder, records)),
    ]  # fmt: skip


def _alone(spark: Any, filled: str, folder: str, records: int, written: int) -> Steps:
    """The same without a broker: what Spark itself takes."""
    rows = spark.read.parquet(filled)
    stream = spark.readStream.schema(rows.schema).parquet(filled).selectExpr(*STREAMED)

    def sink() -> None:
        _numbered(spark, written).write.parquet(f"{folder}/sink")
        _check_written(spark.read.parquet(f"{folder}/sink"), written)

    return [
        ("alone_batch", lambda: _counted(rows, records)),
        ("alone_stream", lambda: _streamed(spark, stream, folder, records)),
        ("alone_sink", sink),
    ]


def _drained(frame: Any) -> None:
    frame.write.format("noop").mode("overwrite").save()


def _counted(frame: Any, records: int) -> None:
    counted = tuple(frame.selectExpr("count(*)", "sum(length(value))").collect()[0])
    if counted != (records, records * PIPELINE_BYTES):
        raise RuntimeError(f"Spark read {counted}, not {records} records")


def _streamed(spark: Any, stream: Any, folder: str, records: int) -> None:
    ingest(stream, f"{folder}/table", f"{folder}/checkpoint")
    found = spark.read.parquet(f"{folder}/table").count()
    if found != records:
        raise RuntimeError(f"Spark streamed {found} records, not {records}")


def _written(spark: Any, bootstrap: str, topic: str, written: int) -> None:
    topics.create(bootstrap, topic, PIPELINE_PARTITIONS)
    write_topic(_numbered(spark, written), topic, bootstrap=bootstrap)
    _check_written(read_topic(spark, topic, bootstrap=bootstrap), written)


def _numbered(spark: Any, written: int) -> Any:
    return spark.range(written).selectExpr(
        "cast(id AS STRING) AS key", f"lpad(cast(id AS STRING), {PIPELINE_BYTES}, 'x') AS value"
    )


def _check_written(rows: Any, written: int) -> None:
    found = tuple(rows.selectExpr("count(*)", "count(DISTINCT key)").collect()[0])
    if found != (written, written):
        raise RuntimeError(f"Spark wrote {written} records, and read back {found}")


VIEW_PARTITIONS = 4
TAGGED_BYTES = 40
"""Of a value; with its headers a record has about 100 B."""


def spark_view(bootstrap: str, http: str, topic: str, records: int, one_in: int) -> dict[str, float]:
    """A view is filled from a topic; then Spark counts what matches: by filtering the topic, and by
    `read_topic(sql=…)`, which finds the view.
    """
    admin = topics.create(bootstrap, topic, VIEW_PARTITIONS)
    topics.create(bootstrap, f"{topic}-warm", 2)
    _fill(bootstrap, f"{topic}-warm", 2, 50)
    _produce_tagged(bootstrap, topic, records, one_in)
    expected = -(-records // one_in)
    view, definition = f"{topic}-hits", {"halfmoon.view.source": topic, "halfmoon.view.sql": "TAGS = 'hit'"}
    begun = time.perf_counter()
    admin.create_topics([NewTopic(view, -1, 1, config=definition)])[view].result(30)
    while _metric(http, "halfmoon_view_lag"):
        time.sleep(0.1)  # asking takes the broker some ms
    figures = {"fill_rec_s": records / (time.perf_counter() - begun)}
    spark = session(app_name="halfmoon-bench", cores=2)
    try:
        _read(spark, bootstrap, f"{topic}-warm", 100)
        reads = {
            "whole": lambda: read_topic(spark, topic, bootstrap=bootstrap).where("tags = 'hit'"),
            "view": lambda: read_topic(spark, topic, bootstrap=bootstrap, sql="TAGS = 'hit'"),
        }
        for name, read in reads.items():
            sent, begun = _metric(http, "halfmoon_sent_bytes_total"), time.perf_counter()
            found = read().count()
            figures[f"{name}_s"] = time.perf_counter() - begun
            figures[f"{name}_mb"] = (_metric(http, "halfmoon_sent_bytes_total") - sent) / 2**20
            if found != expected:
                raise RuntimeError(f"Spark found {found} records with {name}, not {expected}")
    finally:
        stop(spark)
    return figures


def _produce_tagged(bootstrap: str, topic: str, records: int, one_in: int) -> None:
    queue = {"queue.buffering.max.messages": 1_000_000, "queue.buffering.max.kbytes": 1 << 20}
    producer = Producer({"bootstrap.servers": bootstrap, "acks": 1, "linger.ms": 20, **queue})
    for number in range(records):
        headers: list[tuple[str, str | bytes | None]] = [
            ("TAGS", b"miss" if number % one_in else b"hit"), ("region", b"HZ"), ("amount", b"%d" % (number % 1000)),
        ]  # fmt: skip
        while True:
            try:
                producer.produce(
                    topic, b"x" * TAGGED_BYTES, headers=headers, partition=number // one_in % VIEW_PARTITIONS
                )
                break
            except BufferError:
                producer.poll(0.1)
        producer.poll(0)
    if producer.flush(30):
        raise TimeoutError("not all records were acknowledged")


def _metric(http: str, name: str) -> float:
    """The sum over all label values that have to do with Kafka's listener, or with no listener."""
    with urllib.request.urlopen(f"http://{http}/metrics") as answer:
        text = answer.read().decode()
    values = re.findall(rf"^{name}(?:\{{(?![^}}]*listener=\"http\")[^}}]*\}})? (\S+)$", text, re.MULTILINE)
    return sum(map(float, values))
