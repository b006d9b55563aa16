"""halfmoon.pipeline.ingest: a stream goes on from its checkpoint, and a failing one says why."""

from __future__ import annotations

import pytest

from halfmoon.pipeline import PipelineError, queries
from halfmoon.pipeline.checkpoint import committed_offsets
from halfmoon.pipeline.ingest import ingest
from halfmoon.pipeline.queries import Queries
from halfmoon.pipeline.topics import read_stream
from tests.spark.test_changes import produce


def test_a_second_run_reads_only_what_is_new(spark, bootstrap, make_topic, tmp_path) -> None:
    topic = make_topic(2)
    table, checkpoint = tmp_path / "table", tmp_path / "checkpoint"
    seen = []

    def run() -> tuple[int, int]:
        stream = read_stream(spark, topic, bootstrap=bootstrap, batch_records=60).select("value", "partition", "offset")
        done = ingest(stream, table, checkpoint, on_batch=seen.append)
        return done.rows, done.batches

    produce(bootstrap, topic, range(100))
    assert run() == (100, 2)
    assert committed_offsets(checkpoint) == {topic: {0: 50, 1: 50}}
    assert run() == (0, 0)
    produce(bootstrap, topic, range(100, 110))
    assert run() == (10, 1)
    values = [int(bytes(row["value"])) for row in spark.read.parquet(str(table)).collect()]
    assert sorted(values) == list(range(110))
    assert [(batch.query, batch.number, batch.rows, batch.lag) for batch in seen] == [
        ("ingest", 0, 60, 40),
        ("ingest", 1, 40, 0),
        ("ingest", 2, 10, 0),
    ]
    assert seen[-1].ends == {topic: {0: 55, 1: 55}}


def test_a_stream_that_fails_says_why_in_one_line(spark, bootstrap, make_topic, tmp_path) -> None:
    topic = make_topic(2)
    produce(bootstrap, topic, range(4))
    broken = read_stream(spark, topic, bootstrap=bootstrap).selectExpr("CAST(CAST(value AS STRING) AS INT) / 0 AS x")
    with pytest.raises(PipelineError, match=r"ingest: .*DIVIDE_BY_ZERO") as caught:
        ingest(broken, tmp_path / "table", tmp_path / "checkpoint")
    assert "\n" not in str(caught.value)


def test_what_the_callback_raises_stops_the_query(spark, bootstrap, make_topic, tmp_path) -> None:
    topic = make_topic(2)
    produce(bootstrap, topic, range(4))

    def give_up() -> None:
        raise PipelineError("the broker ended")

    with pytest.raises(PipelineError, match="the broker ended"):
        ingest(read_stream(spark, topic, bootstrap=bootstrap), tmp_path / "t", tmp_path / "c", on_tick=give_up)
    assert spark.streams.active == []


def test_of_many_queries_a_few_run_at_once(spark, bootstrap, make_topic, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(queries, "AT_ONCE", 2)
    topics = [make_topic(1) for _ in range(5)]
    for topic in topics:
        produce(bootstrap, topic, range(0, 10, 2))
    most = 0

    def look() -> None:
        nonlocal most
        most = max(most, len(spark.streams.active))

    with Queries(spark) as started:
        for n, topic in enumerate(topics):
            stream = read_stream(spark, topic, bootstrap=bootstrap)
            if n == 1:
                stream = stream.selectExpr("raise_error('no more') AS x")
            writer = stream.writeStream.format("noop")
            started.start(topic, writer, str(tmp_path / topic))
        with pytest.raises(PipelineError, match=f"{topics[1]}: .*no more"):
            started.run(look)
    assert 1 <= most <= 2
    assert [started.totals[topic].rows for topic in topics] == [5, 0, 5, 5, 5], "the others are finished"
