"""halfmoon.pipeline.topics: what a topic's records look like in Spark, where a read begins and ends, and the sink."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from pathlib import Path

import pytest
from confluent_kafka import Producer
from pyspark.sql import functions as F  # noqa: N812

from halfmoon.demo.load import TopicView
from halfmoon.demo.source import Record
from halfmoon.pipeline import PipelineError
from halfmoon.pipeline.admin import Admin
from halfmoon.pipeline.offsets import GroupOffsets
from halfmoon.pipeline.topics import read_stream, read_topic, write_topic
from halfmoon.pipeline.values import Avro
from tests.crash.serving import free_port

GROUP_PARTS = 3


def produce(bootstrap: str, topic: str, *records: Record, partition: int = 0) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    for record in records:
        producer.produce(
            topic, record.value, record.key, partition, timestamp=record.timestamp_ms, headers=list(record.headers)
        )
    assert producer.flush(20) == 0


def numbers(frame) -> list[int]:
    return sorted(int(bytes(row["value"])) for row in frame.select("value").collect())


def test_columns(spark, bootstrap, topic) -> None:
    headers = (("TAGS", b"old"), ("KEYS", b"a b"), ("TAGS", b"new"), ("none", None))
    produce(bootstrap, topic, Record(1_500, b"k", b"v", headers), Record(2_500, None, b"", ()))
    messages = read_topic(spark, topic, bootstrap=bootstrap)
    first, second = messages.orderBy("offset").collect()
    assert (bytes(first["key"]), bytes(first["value"]), first["tags"], first["keys"]) == (b"k", b"v", "new", "a b")
    assert first["properties"] == {"KEYS": "a b", "TAGS": "new", "none": None}
    assert [header["key"] for header in first["headers"]] == ["TAGS", "KEYS", "TAGS", "none"]
    assert (second["key"], second["tags"], second["properties"], second["headers"]) == (None, None, {}, [])
    assert (second["topic"], second["partition"], second["offset"]) == (topic, 0, 1)
    times = messages.select(F.unix_millis("timestamp").alias("at")).collect()
    assert sorted(row["at"] for row in times) == [1_500, 2_500]


def test_a_null_value(spark, bootstrap, topic) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    producer.produce(topic, None, b"gone")
    assert producer.flush(20) == 0
    (row,) = read_topic(spark, topic, bootstrap=bootstrap, schema="a INT").collect()
    assert (bytes(row["key"]), row["value"], row["data"]) == (b"gone", None, None)


def test_json_values_are_typed_and_what_is_none_is_null(spark, bootstrap, topic) -> None:
    values = (b'{"id": "o-1", "amount": 12.5}', b"no json", b'{"id": "o-2", "amount": "many"}')
    produce(bootstrap, topic, *(Record(1, None, value, ()) for value in values))
    frame = read_topic(spark, topic, bootstrap=bootstrap, schema="id STRING, amount DOUBLE").orderBy("offset")
    rows = [tuple(row) for row in frame.select("data.id", "data.amount").collect()]
    assert rows == [("o-1", 12.5), (None, None), ("o-2", None)]


AVRO = '{"type": "record", "name": "o", "fields": [{"name": "id", "type": "long"}, {"name": "s", "type": "string"}]}'


@pytest.mark.parametrize("framing", ["none", "confluent"])
def test_avro_values_are_typed(spark, bootstrap, topic, framing: str) -> None:
    prefix = b"\x00\x00\x00\x00\x07" if framing == "confluent" else b""
    produce(bootstrap, topic, Record(1, None, prefix + b"\x54\x04hi", ()), Record(1, None, prefix + b"\xff", ()))
    frame = read_topic(spark, topic, bootstrap=bootstrap, schema=Avro(AVRO, framing)).orderBy("offset")
    assert [tuple(row) for row in frame.select("data.id", "data.s").collect()] == [(42, "hi"), (None, None)]


SWAPPED = '{"type": "record", "name": "o", "fields": [{"name": "s", "type": "string"}, {"name": "id", "type": "long"}]}'
"""The same fields the other way round."""


def framed(schema_id: int, value: bytes) -> Record:
    return Record(1, None, b"\x00" + schema_id.to_bytes(4, "big") + value, ())


def test_avro_values_are_read_with_the_schema_that_they_name(spark, bootstrap, topic) -> None:
    big = 0x7FFFFFFF
    records = (framed(1, b"\x54\x04hi"), framed(big, b"\x04ho\x56"), framed(3, b"\x54\x04hi"), framed(1, b"\xff"))
    others = (b"\x00\x00", b"\x01\x00\x00\x00\x01\x54\x04hi")
    produce(bootstrap, topic, *records, *(Record(1, None, value, ()) for value in others))
    frame = read_topic(spark, topic, bootstrap=bootstrap, schema=Avro({1: AVRO, big: SWAPPED})).orderBy("offset")
    rows = [tuple(row) for row in frame.select("schema_id", "data.id", "data.s").collect()]
    assert rows == [
        (1, 42, "hi"), (big, 43, "ho"), (3, None, None), (1, None, None), (None, None, None), (None, None, None),
    ]  # fmt: skip
    assert frame.schema["data"].dataType.names == ["s", "id"], "as the highest id has them"
    unknown = frame.where("data IS NULL AND schema_id NOT IN (1, 2147483647)").groupBy("schema_id").count().collect()
    assert [tuple(row) for row in unknown] == [(3, 1)]


def test_avro_values_are_resolved_to_the_readers_schema(spark, bootstrap, topic) -> None:
    produce(bootstrap, topic, framed(1, b"\x54\x04hi"), framed(2, b"\x04ho\x56"))
    reader = """{"type": "record", "name": "o", "fields": [
        {"name": "id", "type": "long"}, {"name": "more", "type": "string", "default": "none"}]}"""
    schema = Avro({1: AVRO, 2: SWAPPED}, reader=reader)
    frame = read_topic(spark, topic, bootstrap=bootstrap, schema=schema).orderBy("offset")
    assert [tuple(row["data"]) for row in frame.collect()] == [(42, "none"), (43, "none")]


def test_an_unknown_avro_schema_fails_where_it_is_to(spark, bootstrap, topic) -> None:
    produce(bootstrap, topic, framed(1, b"\x54\x04hi"), framed(3, b"\x54\x04hi"))
    frame = read_topic(spark, topic, bootstrap=bootstrap, schema=Avro({1: AVRO}, unknown="fail"))
    with pytest.raises(Exception, match="a value has the unknown schema id 3"):
        frame.select("data.id").collect()


def test_one_avro_schema_is_not_used_for_values_that_name_others(spark, bootstrap, topic) -> None:
    """It gave wrong numbers without a word."""
    produce(bootstrap, topic, framed(1, b"\x54\x04hi"), framed(2, b"\x04ho\x56"))
    with pytest.raises(PipelineError, match=r"several Avro schemas \(ids 1, 2, …\)"):
        read_topic(spark, topic, bootstrap=bootstrap, schema=Avro(AVRO, "confluent"))
    with pytest.raises(PipelineError, match="a stream needs the ids"):
        read_stream(spark, topic, bootstrap=bootstrap, schema=Avro(AVRO, "confluent"))
    with pytest.raises(PipelineError, match="needs a schema"):
        Avro({})


def test_one_avro_schema_reads_an_empty_topic(spark, bootstrap, topic) -> None:
    frame = read_topic(spark, topic, bootstrap=bootstrap, schema=Avro(AVRO, "confluent"))
    assert frame.select("data.id", "data.s").collect() == []


@pytest.mark.parametrize("ansi", ["true", "false"])
def test_columns_with_and_without_ansi(spark, bootstrap, topic, ansi: str) -> None:
    headers = (("TAGS", b"t"), ("bad", b"\xff"))
    produce(bootstrap, topic, Record(1, None, b'{"n": 1}', headers), Record(2, None, b"[]", ()))
    before = spark.conf.get("spark.sql.ansi.enabled")
    spark.conf.set("spark.sql.ansi.enabled", ansi)
    try:
        frame = read_topic(spark, topic, bootstrap=bootstrap, schema="n INT").orderBy("offset")
        rows = frame.select("tags", "keys", "data.n", "properties").collect()
    finally:
        spark.conf.set("spark.sql.ansi.enabled", before)
    assert [tuple(row)[:3] for row in rows] == [("t", None, 1), (None, None, None)]
    assert set(rows[0]["properties"]) == {"TAGS", "bad"}


# -- where it begins and ends ------------------------------------------------------------------------------------------


def test_a_range_of_offsets(spark, bootstrap, make_topic) -> None:
    topic = make_topic(2)
    produce(bootstrap, topic, *(Record(1, None, b"%d" % n, ()) for n in range(10)))
    produce(bootstrap, topic, Record(1, None, b"100", ()), partition=1)
    part = read_topic(spark, topic, bootstrap=bootstrap, start={topic: {0: 3}}, end={topic: {0: 6}})
    assert numbers(part) == [3, 4, 5, 100], "of a partition that is not named, all there is"


def test_a_range_of_times(spark, bootstrap, make_topic) -> None:
    topic = make_topic(2)
    produce(bootstrap, topic, *(Record(1000 * n, None, b"%d" % n, ()) for n in range(1, 10)))
    produce(bootstrap, topic, Record(1, None, b"0", ()), partition=1)
    first, last = datetime.fromtimestamp(3, UTC), datetime(1970, 1, 1, 0, 0, 6)
    assert numbers(read_topic(spark, topic, bootstrap=bootstrap, start=first, end=last)) == [3, 4, 5]
    assert numbers(read_topic(spark, topic, bootstrap=bootstrap, start=datetime(2100, 1, 1))) == []
    assert numbers(read_topic(spark, topic, bootstrap=bootstrap, end=datetime(2100, 1, 1))) == list(range(10))


def test_what_a_group_has_read_and_what_it_has_not(spark, bootstrap, make_topic) -> None:
    topic, group = make_topic(GROUP_PARTS), "spark-readers"
    for partition in range(GROUP_PARTS):
        produce(bootstrap, topic, *(Record(1, None, b"%d" % (10 * partition + n), ()) for n in range(3)),
                partition=partition)  # fmt: skip
    Admin(bootstrap).commit(group, {topic: {0: 1, 1: 3}})
    rest = read_topic(spark, topic, bootstrap=bootstrap, start=GroupOffsets(group))
    assert numbers(rest) == [1, 2, 20, 21, 22]
    only_new = read_topic(spark, topic, bootstrap=bootstrap, start=GroupOffsets(group, otherwise="latest"))
    assert numbers(only_new) == [1, 2]
    done = read_topic(spark, topic, bootstrap=bootstrap, end=GroupOffsets(group))
    assert numbers(done) == [0, 10, 11, 12]


def test_an_empty_topic(spark, bootstrap, make_topic) -> None:
    topic = make_topic(2)
    assert read_topic(spark, topic, bootstrap=bootstrap, start=datetime(2013, 1, 1)).collect() == []


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"topics": "spark-nowhere"}, "there is no topic 'spark-nowhere' at "),
        ({"topics": []}, "no topic to read was named"),
        ({"start": "yesterday"}, "'yesterday' is neither 'earliest' nor 'latest', nor a datetime, nor offsets"),
        ({"start": "latest"}, "a read that ends now cannot begin at 'latest'"),
        ({"end": "earliest"}, "a read cannot end at 'earliest'"),
        ({"start": {"other": {0: 1}}}, "offsets are given for 'other', which is not among the topics read"),
        ({"sql": " "}, "sql= is empty"),
        ({"tag": "a", "sql": "b = 1"}, "give one of tag= and sql="),
        ({"tag": "a", "start": {"topic": {0: 1}}}, "a view has offsets of its own"),
    ],
)
def test_what_cannot_be_read_is_refused_at_once(spark, bootstrap, topic, arguments, said) -> None:
    with pytest.raises(PipelineError) as refused:
        read_topic(spark, **{"topics": topic, "bootstrap": bootstrap} | arguments)
    assert str(refused.value).startswith(said)


def test_no_broker(spark, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("halfmoon.pipeline.admin.REQUEST_TIMEOUT_S", 1)
    address = f"127.0.0.1:{free_port()}"
    with pytest.raises(PipelineError, match=f"no broker answers at {address}"):
        read_topic(spark, "orders", bootstrap=address)


# -- filters pushed down -----------------------------------------------------------------------------------------------


def tagged(count: int, one_in: int) -> list[Record]:
    return [
        Record(1_000 + n, None, b"%d" % n, (("TAGS", b"miss" if n % one_in else b"hit"), ("amount", b"%d" % n)))
        for n in range(count)
    ]


@pytest.fixture
def explained(capsys: pytest.CaptureFixture[str]):
    def explain(frame) -> str:
        capsys.readouterr()
        frame.explain()
        return capsys.readouterr().out

    return explain


def test_a_tag_is_pushed_down_and_explain_says_so(spark, bootstrap, make_topic, explained) -> None:
    topic = make_topic(2)
    produce(bootstrap, topic, *tagged(1_000, 100))
    produce(bootstrap, topic, *tagged(50, 10), partition=1)
    hits = read_topic(spark, topic, bootstrap=bootstrap, tag="hit || other")
    assert numbers(hits) == sorted([*range(0, 1000, 100), *range(0, 50, 10)])
    assert f"Subscribe[{topic}.tag.hit-or-other." in explained(hits)
    assert {row["tags"] for row in hits.collect()} == {"hit"}


def test_sql_is_pushed_down_and_what_is_new_is_waited_for(spark, bootstrap, make_topic) -> None:
    topic = make_topic(1)
    produce(bootstrap, topic, *tagged(2_000, 3))
    before = read_topic(spark, topic, bootstrap=bootstrap, sql="amount >= 1990")
    assert numbers(before) == list(range(1990, 2000))
    produce(bootstrap, topic, *tagged(2_005, 3))
    again = read_topic(spark, topic, bootstrap=bootstrap, sql="amount >= 1990")
    assert numbers(again) == sorted([*range(1990, 2000), *range(1990, 2005)])
    assert numbers(before) == list(range(1990, 2000)), "what had been asked for has not changed"
    views = [name for name in Admin(bootstrap).topics() if name.startswith(f"{topic}.")]
    assert views == [f"{topic}.sql.amount-from-1990.{views[0][-8:]}"], "one view serves both"


def test_a_view_that_exists_is_used(spark, bootstrap, make_topic, explained) -> None:
    topic = make_topic(1)
    definition = {"halfmoon.view.source": topic, "halfmoon.view.tag": "hit", "retention.ms": "-1"}
    Admin(bootstrap).create_topic(f"{topic}-hits", -1, definition)
    produce(bootstrap, topic, *tagged(10, 5))
    hits = read_topic(spark, topic, bootstrap=bootstrap, tag="hit")
    assert f"Subscribe[{topic}-hits]" in explained(hits)
    assert numbers(hits) == [0, 5]


def test_a_view_that_keeps_less_than_the_topic_is_not_used(spark, bootstrap, make_topic, explained) -> None:
    topic = make_topic(1)
    definition = {"halfmoon.view.source": topic, "halfmoon.view.tag": "hit", "retention.ms": "1000"}
    Admin(bootstrap).create_topic(f"{topic}-hits", -1, definition)
    hits = read_topic(spark, topic, bootstrap=bootstrap, tag="hit")
    assert f"Subscribe[{topic}.tag.hit." in explained(hits)


def test_a_view_with_a_name_and_of_something_else(spark, bootstrap, make_topic, explained) -> None:
    topic = make_topic(1)
    named = read_topic(spark, topic, bootstrap=bootstrap, tag="hit", view=f"{topic}-mine")
    assert f"Subscribe[{topic}-mine]" in explained(named)
    with pytest.raises(PipelineError, match=f"{topic}-mine is no view of {topic} with tag 'miss' from earliest"):
        read_topic(spark, topic, bootstrap=bootstrap, tag="miss", view=f"{topic}-mine")
    with pytest.raises(PipelineError, match=r"cannot create topic .*: .*column"):
        read_topic(spark, topic, bootstrap=bootstrap, sql="amount >>> 5")


def test_a_stream_with_a_filter(spark, bootstrap, make_topic, tmp_path: Path) -> None:
    topic = make_topic(1)
    produce(bootstrap, topic, *tagged(300, 3))
    stream = read_stream(spark, topic, bootstrap=bootstrap, tag="hit", batch_records=60)
    query = (
        stream.writeStream.format("parquet")
        .option("path", str(tmp_path / "table"))
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(60)
    assert numbers(spark.read.parquet(str(tmp_path / "table"))) == list(range(0, 300, 3))


# -- writing -----------------------------------------------------------------------------------------------------------


def test_the_sink_writes_headers_and_leaves_out_nulls(spark, bootstrap, topic) -> None:
    frame = spark.range(1).selectExpr("'k' AS key", "'v' AS value", "'red' AS tag", "CAST(NULL AS STRING) AS gone")
    properties = {"gone": F.col("gone"), "n": F.lit(7)}
    write_topic(frame, topic, bootstrap=bootstrap, tags=F.col("tag"), properties=properties)
    with TopicView(bootstrap) as view:
        assert view.bounds(topic, 0) == (0, 1)
        record = view.record(topic, 0, 0)
    assert (record.key, record.value, record.headers) == (b"k", b"v", (("TAGS", b"red"), ("n", b"7")))


def test_a_topic_is_copied_with_its_headers_into_the_same_partition(spark, bootstrap, make_topic) -> None:
    source, target = make_topic(2), make_topic(2)
    headers = (("TAGS", b"a"), ("x", None), ("x", b"\xff"))
    produce(bootstrap, source, Record(5, b"k", b"v", headers), partition=1)
    write_topic(read_topic(spark, source, bootstrap=bootstrap), target, bootstrap=bootstrap, keys=F.lit("copied"))
    with TopicView(bootstrap) as view:
        record = view.record(target, 1, 0)
    assert (record.key, record.value, record.headers) == (b"k", b"v", (*headers, ("KEYS", b"copied")))


def test_delays(spark, bootstrap, topic) -> None:
    frame = spark.range(3).selectExpr("CAST(id AS STRING) AS value", "200 * (3 - id) AS wait")
    write_topic(frame.coalesce(1), topic, bootstrap=bootstrap, delay_ms=F.col("wait"))
    at_ms = int(time.time() + 5) * 1_000  # later than a busy machine needs to send it
    at = F.timestamp_millis(F.lit(at_ms))
    write_topic(frame.selectExpr("'at' AS value").limit(1), topic, bootstrap=bootstrap, deliver_at=at)
    with TopicView(bootstrap) as view:
        records = [view.record(topic, 0, offset) for offset in range(4)]
    assert {record.value: dict(record.headers)["halfmoon.delayed"] for record in records} == {
        b"0": b"TIMER_DELAY_MS=600", b"1": b"TIMER_DELAY_MS=400", b"2": b"TIMER_DELAY_MS=200",
        b"at": b"TIMER_DELIVER_MS=%d" % at_ms,
    }  # fmt: skip
    with pytest.raises(PipelineError, match="give one of delay_level=, delay_ms= and deliver_at="):
        write_topic(frame, topic, bootstrap=bootstrap, delay_ms=5, delay_level=1)


def test_a_stream_into_a_topic(spark, bootstrap, make_topic, tmp_path: Path) -> None:
    source, target = make_topic(1), make_topic(1)
    produce(bootstrap, source, *tagged(10, 2))
    stream = read_stream(spark, source, bootstrap=bootstrap)
    with pytest.raises(PipelineError, match="needs a checkpoint"):
        write_topic(stream, target, bootstrap=bootstrap)
    for more, expected in ((0, 10), (5, 15), (0, 15)):
        produce(bootstrap, source, *tagged(more, 2))
        query = write_topic(stream, target, bootstrap=bootstrap, checkpoint=tmp_path / "c")
        assert query is not None
        assert query.awaitTermination(60)
        assert read_topic(spark, target, bootstrap=bootstrap).count() == expected


def test_a_frame_without_a_value(spark, bootstrap, make_topic) -> None:
    with pytest.raises(PipelineError, match="needs a column 'value'"):
        write_topic(spark.range(1), make_topic(), bootstrap=bootstrap)
