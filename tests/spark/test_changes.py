"""A topic that changes while Spark reads it, and what its user sees: it grows, it is deleted, it loses records."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions

from halfmoon.pipeline import PipelineError
from halfmoon.pipeline.admin import Admin
from halfmoon.pipeline.failures import spark_errors
from halfmoon.pipeline.jobs.archive import archive, read_archive
from halfmoon.pipeline.topics import read_topic


def produce(bootstrap: str, topic: str, numbers: range, partitions: int = 2) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "topic.metadata.refresh.interval.ms": 200})
    for n in numbers:
        producer.produce(topic, b"%d" % n, partition=n % partitions)
    assert producer.flush(20) == 0


def values(frame) -> list[int]:
    return sorted(int(bytes(row["value"])) for row in frame.select("value").collect())


def grow(bootstrap: str, topic: str, partitions: int) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_partitions([NewPartitions(topic, partitions)])[topic].result(10)


def delete(bootstrap: str, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.delete_topics([topic])[topic].result(10)


def lose(bootstrap: str, topic: str, partition: int, before: int) -> None:
    """As retention does: what is before that offset is gone."""
    admin, place = AdminClient({"bootstrap.servers": bootstrap}), TopicPartition(topic, partition, before)
    admin.delete_records([place])[place].result(10)


@pytest.fixture
def archived(spark, bootstrap, make_topic, tmp_path: Path) -> tuple[str, str]:
    """A topic of ten records in two partitions, archived; and where."""
    topic, path = make_topic(2), str(tmp_path)
    produce(bootstrap, topic, range(10))
    archive(spark, topic, path, bootstrap=bootstrap)
    return topic, path


def test_partitions_that_come_while_a_stream_runs_are_read_from_their_beginning(
    spark, bootstrap, make_topic, tmp_path: Path
) -> None:
    topic, path = make_topic(2), str(tmp_path)
    produce(bootstrap, topic, range(10))
    rows = 0

    def on_batch(batch) -> None:
        nonlocal rows
        rows += batch.rows
        if rows == 10:
            grow(bootstrap, topic, 3)
            produce(bootstrap, topic, range(10, 22), 3)

    def enough() -> None:
        if rows >= 22:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        archive(spark, topic, path, bootstrap=bootstrap, every="100 milliseconds", on_batch=on_batch, on_tick=enough)
    archive(spark, topic, path, bootstrap=bootstrap)
    assert values(read_archive(spark, path)) == list(range(22))


def test_partitions_that_came_between_two_runs(spark, bootstrap, archived) -> None:
    topic, path = archived
    grow(bootstrap, topic, 4)
    produce(bootstrap, topic, range(10, 30), 4)
    archive(spark, topic, path, bootstrap=bootstrap)
    assert values(read_archive(spark, path)) == list(range(30))


def test_records_that_are_lost_before_they_are_read_end_a_stream(spark, bootstrap, archived) -> None:
    topic, path = archived
    produce(bootstrap, topic, range(10, 30))
    lose(bootstrap, topic, 0, 8)
    with pytest.raises(PipelineError) as ended:
        archive(spark, topic, path, bootstrap=bootstrap)
    assert str(ended.value).startswith(f"{topic}: records are gone that had not been read yet (")
    assert "--allow-data-loss" in str(ended.value)
    assert values(read_archive(spark, path)) == list(range(10)), "what there was stays"
    archive(spark, topic, path, bootstrap=bootstrap, allow_data_loss=True)
    lost = {10, 12, 14}
    assert set(values(read_archive(spark, path))) == set(range(30)) - lost
    archive(spark, topic, path, bootstrap=bootstrap)


def test_a_topic_that_is_deleted(spark, bootstrap, archived) -> None:
    topic, path = archived
    delete(bootstrap, topic)
    with pytest.raises(PipelineError, match=f"there is no topic '{topic}'"):
        archive(spark, topic, path, bootstrap=bootstrap)
    assert values(read_archive(spark, path)) == list(range(10))


def test_a_topic_that_is_deleted_while_a_stream_runs(spark, bootstrap, make_topic, tmp_path: Path) -> None:
    topic, path = make_topic(2), str(tmp_path)
    produce(bootstrap, topic, range(10))
    with pytest.raises(PipelineError) as ended:
        archive(spark, topic, path, bootstrap=bootstrap, every="100 milliseconds",
                on_batch=lambda _: delete(bootstrap, topic))  # fmt: skip
    assert str(ended.value) == f"{topic}: a topic, or a partition, that was being read is not there any more"
    assert values(read_archive(spark, path)) == list(range(10))


def test_a_topic_that_is_made_anew(spark, bootstrap, archived) -> None:
    topic, path = archived
    delete(bootstrap, topic)
    Admin(bootstrap).ensure_topic(topic, 2)
    produce(bootstrap, topic, range(100, 104))
    for allowed in (False, True):
        with pytest.raises(PipelineError, match=f"{topic} is not the topic that is archived in .*: it was deleted"):
            archive(spark, topic, path, bootstrap=bootstrap, allow_data_loss=allowed)
    assert values(read_archive(spark, path)) == list(range(10))


def test_an_archive_without_its_checkpoint(spark, bootstrap, archived, tmp_path: Path) -> None:
    topic, path = archived
    shutil.rmtree(tmp_path / "_checkpoint")
    with pytest.raises(PipelineError, match="has lost its checkpoint"):
        archive(spark, topic, path, bootstrap=bootstrap)


def test_a_topic_that_loses_records_while_it_is_read(spark, bootstrap, make_topic) -> None:
    topic = make_topic(2)
    produce(bootstrap, topic, range(10))
    frame = read_topic(spark, topic, bootstrap=bootstrap, start={topic: {0: 0, 1: 0}}, end={topic: {0: 5, 1: 5}})
    lose(bootstrap, topic, 0, 3)
    lost = rf"records are gone .* \((offsets \[0, 5\)|offset 0) of {topic}-0\)"  # Spark 3.5 tells of the first alone.
    with pytest.raises(PipelineError, match=lost), spark_errors():
        frame.collect()
    frame = read_topic(
        spark, topic, bootstrap=bootstrap, start={topic: {0: 0, 1: 0}}, end={topic: {0: 5, 1: 5}},
        options={"failOnDataLoss": "false"},
    )  # fmt: skip
    assert values(frame) == [1, 3, 5, 6, 7, 8, 9]
