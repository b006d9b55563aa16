"""halfmoon.pipeline.topics: what a topic's records look like in Spark, and that the sink's headers arrive."""

from __future__ import annotations

from confluent_kafka import Producer
from pyspark.sql import functions as F  # noqa: N812

from halfmoon.demo.load import TopicView
from halfmoon.demo.source import Record
from halfmoon.pipeline.topics import read_topic, write_topic


def produce(bootstrap: str, topic: str, *records: Record) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    for record in records:
        producer.produce(
            topic, record.value, record.key, 0, timestamp=record.timestamp_ms, headers=list(record.headers)
        )
    assert producer.flush(20) == 0


def test_columns(spark, bootstrap, make_topic) -> None:
    topic = make_topic()
    headers = (("TAGS", b"old"), ("KEYS", b"a b"), ("TAGS", b"new"), ("none", None))
    produce(bootstrap, topic, Record(1_500, b"k", b"v", headers), Record(2_500, None, b"", ()))
    first, second = read_topic(spark, bootstrap, topic).orderBy("offset").collect()
    assert (bytes(first["key"]), bytes(first["value"]), first["tags"], first["keys"]) == (b"k", b"v", "new", "a b")
    assert first["properties"] == {"KEYS": "a b", "TAGS": "new", "none": None}
    assert [header["key"] for header in first["headers"]] == ["TAGS", "KEYS", "TAGS", "none"]
    assert (second["key"], second["tags"], second["properties"], second["headers"]) == (None, None, {}, [])
    assert (second["topic"], second["partition"], second["offset"]) == (topic, 0, 1)
    times = read_topic(spark, bootstrap, topic).select(F.unix_millis("timestamp").alias("at")).collect()
    assert sorted(row["at"] for row in times) == [1_500, 2_500]


def test_a_range_of_offsets(spark, bootstrap, make_topic) -> None:
    topic = make_topic()
    produce(bootstrap, topic, *(Record(1, None, b"%d" % n, ()) for n in range(10)))
    part = read_topic(spark, bootstrap, topic, start={topic: {0: 3}}, end={topic: {0: 6}})
    assert [bytes(row["value"]) for row in part.orderBy("offset").select("value").collect()] == [b"3", b"4", b"5"]


def test_the_sink_writes_headers_and_leaves_out_nulls(spark, bootstrap, make_topic) -> None:
    topic = make_topic()
    frame = spark.range(1).selectExpr("'k' AS key", "'v' AS value", "'red' AS tag", "CAST(NULL AS STRING) AS gone")
    write_topic(frame, bootstrap, topic, tags=F.col("tag"), properties={"gone": F.col("gone"), "n": F.lit(7)})
    with TopicView(bootstrap) as view:
        assert view.bounds(topic, 0) == (0, 1)
        record = view.record(topic, 0, 0)
    assert (record.key, record.value, record.headers) == (b"k", b"v", (("TAGS", b"red"), ("n", b"7")))
