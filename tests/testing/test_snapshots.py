"""`save` and `from_snapshot`."""

from __future__ import annotations

import statistics
import time
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from halfmoon.errors import StartError
from halfmoon.testing import Broker
from tests.testing.test_broker import QUIET, consume, produce


def prepared(path: Path) -> None:
    with Broker() as broker:
        config = {"bootstrap.servers": broker.bootstrap_servers, **QUIET}
        admin = AdminClient(config)
        admin.create_topics([NewTopic("orders", 3, 1)])["orders"].result(10)
        for number in range(30):
            broker.produce("orders", str(number), partition=number % 3)
        consumer = Consumer({**config, "group.id": "billing"})
        consumer.commit(offsets=[TopicPartition("orders", 0, 4)], asynchronous=False)
        consumer.close()
        broker.produce("orders", "later", partition=0, headers={"TIMER_DELAY_SEC": "3600"})
        broker.advance("30m")
        broker.save(path)
        broker.produce("orders", "after", partition=0)


def test_a_broker_begins_with_it(tmp_path: Path) -> None:
    prepared(tmp_path / "saved")
    before = sorted((path, path.stat().st_mtime_ns) for path in (tmp_path / "saved").rglob("*") if path.is_file())
    for _ in range(2):
        with Broker.from_snapshot(tmp_path / "saved") as broker:
            assert broker.now_ms > (time.time() + 1700) * 1000
            assert len(broker.records("orders")) == 30
            config = {"bootstrap.servers": broker.bootstrap_servers, **QUIET, "group.id": "billing"}
            consumer = Consumer(config)
            (committed,) = consumer.committed([TopicPartition("orders", 0)], timeout=10)
            assert committed.offset == 4
            consumer.close()
            broker.advance("30m")
            assert broker.records("orders", partition=0)[-1].value == b"later"
            produce(broker, b"more", topic="orders")
            folder = broker.data_dir
            broker.kill()
            broker.restart()
            assert broker.data_dir == folder
            assert len(broker.records("orders")) == 32
        assert not Path(folder).exists()
    assert before == sorted(
        (path, path.stat().st_mtime_ns) for path in (tmp_path / "saved").rglob("*") if path.is_file()
    )


def test_several_begin_with_it_at_the_same_time(tmp_path: Path) -> None:
    prepared(tmp_path / "saved")
    with Broker.from_snapshot(tmp_path / "saved") as first, Broker.from_snapshot(tmp_path / "saved") as second:
        first.produce("orders", "mine", partition=2)
        assert len(first.records("orders")) == 31
        assert len(second.records("orders")) == 30


def test_it_takes_no_time(tmp_path: Path) -> None:
    prepared(tmp_path / "saved")
    took_s = []
    for _ in range(5):
        begun_s = time.process_time()  # which other processes do not change
        with Broker.from_snapshot(tmp_path / "saved"):
            took_s.append(time.process_time() - begun_s)
    assert statistics.median(took_s) < 0.2


def test_it_can_be_saved_while_it_does_not_run(tmp_path: Path) -> None:
    broker = Broker().start()
    produce(broker, b"one")
    broker.kill()
    broker.save(tmp_path / "saved")
    broker.stop()
    with Broker.from_snapshot(tmp_path / "saved") as again:
        assert consume(again, 1) == [b"one"]


def test_users_and_their_rules_are_in_it(tmp_path: Path) -> None:
    with Broker(secure=True) as broker:
        broker.create_user("alice", "secret")
        broker.allow("alice", "topic:orders", "Write")
        broker.save(tmp_path / "saved")
    with Broker.from_snapshot(tmp_path / "saved", secure=True) as again:
        again.create_user("alice", "secret")  # the clients' side of it: what this broker's client_config needs
        assert again.app is not None
        assert {user.name for user in again.app.node.users.all()} == {"alice", "test"}
        assert len(again.app.node.state.common.acls.rules) == 1


def test_what_is_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StartError, match=r"no snapshot\.json in it"):
        Broker.from_snapshot(tmp_path)
    prepared(tmp_path / "saved")
    with Broker() as broker, pytest.raises(StartError, match="exists already"):
        broker.save(tmp_path / "saved")
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "file").touch()
    with pytest.raises(StartError, match="exists already"):
        Broker.from_snapshot(tmp_path / "saved", data_dir=str(tmp_path / "data")).start()
    assert (tmp_path / "data" / "file").exists()
    with pytest.raises(AssertionError, match="never started"):
        Broker().save(tmp_path / "other")
