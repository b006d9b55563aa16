"""halfmoon.pipeline.jobs.replay: what was archived comes again as it was, in order, once, also after a kill."""

from __future__ import annotations

import re
import time
from datetime import datetime
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from halfmoon.pipeline import PipelineError
from halfmoon.pipeline.admin import Admin
from halfmoon.pipeline.jobs.archive import archive
from halfmoon.pipeline.jobs.replay import replay

AT_MS = 1_767_225_600_000
"""2026-01-01, UTC."""


@pytest.fixture
def archived(spark, bootstrap, make_topic, tmp_path: Path) -> tuple[str, str]:
    """A topic of 2,000 records in two partitions, archived; and where."""
    topic = make_topic(2)
    producer = Producer({"bootstrap.servers": bootstrap})
    for n in range(2_000):
        headers = [("TAGS", b"a"), ("n", b"%d" % n), ("n", None), ("raw", b"\xff")]
        key, value = (None, b"%d" % n) if n % 3 else (b"k", None)
        producer.produce(topic, value, key, n % 2, timestamp=AT_MS + 1000 * (n - n % 7), headers=headers)
    assert producer.flush(20) == 0
    archive(spark, topic, str(tmp_path / "archive"), bootstrap=bootstrap)
    return topic, str(tmp_path / "archive")


def records(bootstrap: str, topic: str) -> dict[int, list[tuple]]:
    """By partition what there is: key, value, timestamp, headers; offsets are left out."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "replayed", "enable.auto.commit": False})
    ends = Admin(bootstrap).ends(topic)
    consumer.assign([TopicPartition(topic, partition, 0) for partition in ends])
    found: dict[int, list[tuple]] = {partition: [] for partition in ends}
    deadline = time.monotonic() + 20
    while sum(map(len, found.values())) < sum(ends.values()) and time.monotonic() < deadline:
        for message in consumer.consume(1_000, 1):
            assert message.error() is None
            row = (message.key(), message.value(), message.timestamp()[1], message.headers())
            found[message.partition()].append(row)
    consumer.close()
    return found


def without_mark(rows: list[tuple]) -> list[tuple]:
    return [(*row[:3], [header for header in row[3] if header[0] != "REPLAY_OF"]) for row in rows]


def test_everything_comes_again_as_it_was(spark, bootstrap, make_topic, archived) -> None:
    topic, path = archived
    target = make_topic(2)
    seen = []
    done = replay(spark, path, topic, target, bootstrap=bootstrap, on_progress=lambda *at: seen.append(at))
    assert (done.sent, done.found) == (2_000, 0)
    source, copy = records(bootstrap, topic), records(bootstrap, target)
    assert {partition: without_mark(rows) for partition, rows in copy.items()} == source
    name, mark = copy[1][0][3][-1]
    assert name == "REPLAY_OF"
    assert re.fullmatch(rf"{re.escape(done.name)}\.[0-9a-f]{{8}}/{topic}/1/0", mark.decode())
    assert seen[-1] == (2_000, 2_000)
    with pytest.raises(PipelineError, match="this replay is finished: give another name"):
        replay(spark, path, topic, target, bootstrap=bootstrap)
    assert replay(spark, path, topic, target, bootstrap=bootstrap, name="again").sent == 2_000


def test_a_range_of_time_into_fewer_partitions_in_the_order_of_time(spark, bootstrap, make_topic, archived) -> None:
    topic, path = archived
    target = make_topic(1)
    start, end = (datetime.fromtimestamp((AT_MS + 1000 * n) / 1000) for n in (700, 1_400))
    utc = {"start": start.astimezone(), "end": end.astimezone()}
    assert replay(spark, path, topic, target, bootstrap=bootstrap, **utc).sent == 700
    times = [row[2] for row in records(bootstrap, target)[0]]
    assert times == sorted(times)
    assert (times[0], times[-1]) == (AT_MS + 700_000, AT_MS + 1_393_000)


def test_a_replay_that_was_killed_goes_on(spark, bootstrap, make_topic, archived) -> None:
    topic, path = archived
    target = make_topic(2)

    def killed(done: int, _total: int) -> None:
        if done >= 1_000:
            raise KeyboardInterrupt

    producer = Producer({"bootstrap.servers": bootstrap})
    producer.produce(target, b"somebody else's", partition=1)
    assert producer.flush(10) == 0
    arguments = {"bootstrap": bootstrap, "rate": 4_000, "name": "mine"}
    with pytest.raises(KeyboardInterrupt):
        replay(spark, path, topic, target, on_progress=killed, **arguments)
    here = sum(Admin(bootstrap).ends(target).values()) - 1
    assert 0 < here < 2_000
    producer.produce(target, b"somebody else's", partition=0)
    assert producer.flush(10) == 0
    # What is archived meanwhile is not part of it.
    producer.produce(topic, b"later", partition=0)
    assert producer.flush(10) == 0
    archive(spark, topic, path, bootstrap=bootstrap)
    done = replay(spark, path, topic, target, **arguments)
    assert (done.sent, done.found) == (2_000 - here, here)
    source, copy = records(bootstrap, topic), records(bootstrap, target)
    for partition in (0, 1):
        mine = [row for row in copy[partition] if row[1] != b"somebody else's"]
        assert without_mark(mine) == [row for row in source[partition] if row[1] != b"later"]


def test_a_rate(spark, bootstrap, make_topic, archived) -> None:
    topic, path = archived
    target = make_topic(2)
    begun = time.monotonic()
    replay(spark, path, topic, target, bootstrap=bootstrap, rate=1_000, end=datetime(2026, 1, 1, 0, 16))
    assert time.monotonic() - begun > 0.9, "962 records at 1,000 a second"


def test_marks_of_an_earlier_replay_are_not_taken_for_ours(spark, bootstrap, make_topic, archived, tmp_path) -> None:
    topic, path = archived
    second, third, again = make_topic(2), make_topic(2), str(tmp_path / "again")
    replay(spark, path, topic, second, bootstrap=bootstrap, name="same")
    archive(spark, second, again, bootstrap=bootstrap)

    def killed(done: int, _total: int) -> None:
        if done >= 1_000:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        replay(spark, again, second, third, bootstrap=bootstrap, name="same", on_progress=killed)
    replay(spark, again, second, third, bootstrap=bootstrap, name="same")
    source, copy = records(bootstrap, topic), records(bootstrap, third)
    assert {partition: without_mark(rows) for partition, rows in copy.items()} == source


def test_a_target_that_would_change_the_records(spark, bootstrap, make_topic, tmp_path: Path) -> None:
    topic, path, admin = make_topic(1), str(tmp_path / "archive"), Admin(bootstrap)
    admin.create_topic(f"{topic}-raw", 1, {"halfmoon.headers.enable": "false"})
    admin.create_topic(f"{topic}-stamps", 1, {"message.timestamp.type": "LogAppendTime"})
    producer = Producer({"bootstrap.servers": bootstrap})
    producer.produce(f"{topic}-raw", b"later", timestamp=AT_MS, headers=[("DELAY", b"18")])
    assert producer.flush(10) == 0
    archive(spark, f"{topic}-raw", path, bootstrap=bootstrap)
    with pytest.raises(PipelineError, match="has a header that acts in topic"):
        replay(spark, path, f"{topic}-raw", topic, bootstrap=bootstrap)
    with pytest.raises(PipelineError, match="stamps records itself"):
        replay(spark, path, f"{topic}-raw", f"{topic}-stamps", bootstrap=bootstrap)
    admin.create_topic(f"{topic}-as-is", 1, {"halfmoon.headers.enable": "false"})
    assert replay(spark, path, f"{topic}-raw", f"{topic}-as-is", bootstrap=bootstrap).sent == 1
    ((_, value, at_ms, headers),) = records(bootstrap, f"{topic}-as-is")[0]
    assert (value, at_ms, headers[0]) == (b"later", AT_MS, ("DELAY", b"18"))


def test_what_is_refused(spark, bootstrap, make_topic, archived) -> None:
    topic, path = archived
    target = make_topic(2)
    for arguments, said in (
        (("nothing", target), "has no topic 'nothing'"),
        ((topic, "spark-nowhere"), "there is no topic 'spark-nowhere'"),
    ):
        with pytest.raises(PipelineError, match=said):
            replay(spark, path, *arguments, bootstrap=bootstrap)
    with pytest.raises(PipelineError, match="a replay's name has letters"):
        replay(spark, path, topic, target, bootstrap=bootstrap, name="../x")
    other = make_topic(2)
    replay(spark, path, topic, target, bootstrap=bootstrap, name="x", end=datetime(2026, 1, 1, 0, 1))
    with pytest.raises(PipelineError, match="is of another replay"):
        replay(spark, path, topic, other, bootstrap=bootstrap, name="x")
