"""Spark's batch read of a topic with many small partitions."""

from __future__ import annotations

import time
from typing import Any

from confluent_kafka import Producer

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
