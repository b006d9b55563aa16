"""Spark's batch reads: of a topic with many small partitions, and of a view beside its source."""

from __future__ import annotations

import re
import time
import urllib.request
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.admin import NewTopic  # type: ignore[attr-defined]

from benchmarks.clients import topics
from halfmoon.pipeline.session import session, stop


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


VIEW_PARTITIONS = 4
TAGGED_BYTES = 40
"""Of a value; with its headers a record has about 100 B."""


def spark_view(bootstrap: str, http: str, topic: str, records: int, one_in: int) -> dict[str, float]:
    """A view is filled from a topic; then Spark counts what the view holds, and the same by filtering the topic."""
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
        tagged = "exists(headers, header -> header.key = 'TAGS' and cast(header.value as string) = 'hit')"
        for name, of, where in (("whole", topic, tagged), ("view", view, "true")):
            sent, begun = _metric(http, "halfmoon_sent_bytes_total"), time.perf_counter()
            reader = spark.read.format("kafka").option("kafka.bootstrap.servers", bootstrap).option("subscribe", of)
            found = reader.option("includeHeaders", "true").load().where(where).count()
            figures[f"{name}_s"] = time.perf_counter() - begun
            figures[f"{name}_mb"] = (_metric(http, "halfmoon_sent_bytes_total") - sent) / 2**20
            if found != expected:
                raise RuntimeError(f"Spark found {found} records in {of}, not {expected}")
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
