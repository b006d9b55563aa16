"""RocketMQ's producers and Spark's Kafka source: one log, so tags, keys and properties are headers of records."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from halfmoon.pipeline.topics import read_topic, write_topic
from halfmoon.testing import Broker
from tests.clients.rocketmq.java import Clients, Java

ORDERS = [  # body, tag, keys, properties
    ("one", "paid", "order-1 customer-7", {"region": "HZ", "price": "5"}),
    ("two", "open", "order-2", {"region": "SH", "price": "15"}),
    ("drei €", "paid", "order-3", {"région": "杭州", "price": "25"}),
    ("four", None, "", {}),
]


@pytest.fixture(scope="module")
def java(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Java]:
    """A JVM with RocketMQ's client: Spark's own has not got it."""
    started = Java(tmp_path_factory.mktemp("java"))
    yield started
    started.stop()


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(config={"listeners": {"rocketmq": {"bind": "127.0.0.1:0", "namesrv": "127.0.0.1:0"}}}) as started:
        yield started


@pytest.fixture(scope="module")
def clients(java: Java, broker: Broker) -> Iterator[Clients]:
    made = Clients(java, broker, "spark")
    yield made
    made.close()


class Sent:
    """What a producer of Java's has sent: by queue and offset, what Spark is to find there."""

    def __init__(self, clients: Clients, topic: str) -> None:
        self.expected: dict[tuple[int, int], tuple[str, str | None, dict[str, str], int]] = {}
        """Value, key, headers but the born host, timestamp in ms."""
        self._clients = clients
        self._topic = topic
        self._producer = clients.producer()

    def each(self) -> None:
        """ORDERS one by one, to one queue after the other."""
        for number, (text, tag, keys, properties) in enumerate(ORDERS):
            message = self._clients.message(self._topic, tag, text, keys, **properties)
            sent = self._producer.send(message, self._clients.queue(self._topic, number % 2))
            self._note(number % 2, sent.getQueueOffset(), sent.getMsgId(), sent.getOffsetMsgId(), ORDERS[number])

    def batch(self) -> None:
        """ORDERS as one batch, to queue 1."""
        made = [
            self._clients.message(self._topic, tag, text, keys, **properties)
            for text, tag, keys, properties in ORDERS
        ]  # fmt: skip
        sent = self._producer.send(self._clients.java.list(made), self._clients.queue(self._topic, 1))
        ids = zip(sent.getMsgId().split(","), sent.getOffsetMsgId().split(","), strict=True)
        for number, (unique, offset_id) in enumerate(ids):
            self._note(1, sent.getQueueOffset() + number, unique, offset_id, ORDERS[number])

    def _note(self, queue: int, offset: int, unique: str, offset_id: str, order: tuple) -> None:
        text, tag, keys, properties = order
        own = {name: value for name, value in (("TAGS", tag), ("KEYS", keys)) if value}
        born_ms = self._clients.admin.viewMessage(self._topic, offset_id).getBornTimestamp()
        headers = {"UNIQ_KEY": unique, "WAIT": "true", **own, **properties}
        self.expected[queue, offset] = text, keys or None, headers, born_ms


def found(frame: DataFrame) -> dict[tuple[int, int], tuple[str, str | None, dict[str, str], int]]:
    """Of a frame with the columns of Spark's source what `Sent.expected` has."""
    rows = frame.select(
        "partition", "offset", "key", "value", "headers", F.unix_millis("timestamp").alias("time_ms")
    ).collect()
    result = {}
    for row in rows:
        headers = {header["key"]: bytes(header["value"]).decode() for header in row["headers"]}
        assert len(headers) == len(row["headers"])
        assert headers.pop("__BORNHOST").startswith("127.0.0.1:")
        key = None if row["key"] is None else bytes(row["key"]).decode()
        result[row["partition"], row["offset"]] = bytes(row["value"]).decode(), key, headers, row["time_ms"]
    assert len(result) == len(rows)
    return result


def test_spark_streams_what_java_sends(spark, clients: Clients, tmp_path: Path) -> None:
    topic, table = clients.topic(2), str(tmp_path / "table")
    sent = Sent(clients, topic)
    sent.each()
    sent.batch()
    stream = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", clients.broker.bootstrap_servers)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("includeHeaders", "true")
        .load()
    )
    query = (
        stream.writeStream.format("parquet")
        .option("path", table)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(60)
    assert sorted(sent.expected) == [(0, 0), (0, 1), *((1, offset) for offset in range(6))]
    assert found(spark.read.parquet(table)) == sent.expected


def test_tags_keys_and_properties_are_columns(spark, clients: Clients) -> None:
    topic, bootstrap = clients.topic(2), clients.broker.bootstrap_servers
    sent = Sent(clients, topic)
    sent.each()
    frame = read_topic(spark, topic, bootstrap=bootstrap)
    assert found(frame) == sent.expected
    columns = {bytes(row["value"]).decode(): (row["tags"], row["keys"], row["properties"]) for row in frame.collect()}
    for text, tag, keys, properties in ORDERS:
        tags, key_words, all_properties = columns[text]
        assert (tags, key_words) == (tag, keys or None)
        assert all_properties.items() >= {"WAIT": "true", **properties}.items()
        assert all_properties.keys() - properties.keys() - {"TAGS", "KEYS"} == {"UNIQ_KEY", "WAIT", "__BORNHOST"}

    def values(**wanted: str) -> set[str]:
        chosen = read_topic(spark, topic, bootstrap=bootstrap, **wanted)
        return {bytes(row["value"]).decode() for row in chosen.select("value").collect()}

    assert values(tag="paid") == {"one", "drei €"}
    assert values(sql="price > 10 AND (TAGS = 'open' OR price >= 25)") == {"two", "drei €"}


def test_java_reads_what_spark_writes(spark, clients: Clients) -> None:
    topic = clients.topic()
    rows = [("k1", "v1", "red", 1), ("k2", "v2", "green", 2), (None, "v3", None, 3)]
    frame = spark.createDataFrame(rows, "key STRING, value STRING, colour STRING, n INT").coalesce(1)
    write_topic(
        frame, topic, bootstrap=clients.broker.bootstrap_servers, tags=F.col("colour"),
        properties={"n": F.col("n"), "gone": F.lit(None)},
    )  # fmt: skip
    puller, queue = clients.sql_puller(topic), clients.queue(topic, 0)

    def pulled(expression: object) -> list[tuple]:
        messages = puller.pull(queue, expression, 0, 32).getMsgFoundList()
        return sorted(
            (bytes(each.getBody()).decode(), each.getTags(), each.getKeys(), each.getUserProperty("n"))
            for each in messages
        )

    assert pulled("*") == [("v1", "red", "k1", "1"), ("v2", "green", "k2", "2"), ("v3", None, None, "3")]
    assert pulled("green") == [("v2", "green", "k2", "2")]
    assert pulled(clients.by_sql("n >= 2")) == [("v2", "green", "k2", "2"), ("v3", None, None, "3")]
