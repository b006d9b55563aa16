"""A broker of several processes is controlled as one of one process is."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from halfmoon.testing import Broker
from halfmoon.testing.object_store import program as versitygw
from halfmoon.testing.postgres import programs
from tests.testing.test_broker import QUIET

HAS_CLUSTERS = versitygw() is not None and programs() is not None
KINDS = [
    "workers",
    pytest.param(
        "nodes",
        marks=pytest.mark.skipif(not HAS_CLUSTERS, reason="PostgreSQL or versitygw is not installed"),
    ),
]


@pytest.fixture(scope="module", params=KINDS)
def broker(request: pytest.FixtureRequest) -> Iterator[Broker]:
    with Broker(**{"workers": 0, request.param: 2 if request.param == "workers" else 3}) as made:
        yield made


@pytest.fixture
def topic(broker: Broker, halfmoon_topic: str) -> str:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers, **QUIET})
    admin.create_topics([NewTopic(halfmoon_topic, 8, 1)])[halfmoon_topic].result(20)
    return halfmoon_topic


def test_records_of_all_partitions(broker: Broker, topic: str) -> None:
    for partition in range(8):
        broker.produce(topic, str(partition), partition=partition)
    assert [each.value for each in broker.records(topic)] == [str(each).encode() for each in range(8)]


def test_time_passes_for_all(broker: Broker, topic: str) -> None:
    for partition in range(8):
        broker.produce(topic, str(partition), partition=partition, headers={"TIMER_DELAY_SEC": "3600"})
    broker.advance("59m")
    assert broker.records(topic) == []
    broker.advance("1m")
    assert [each.value for each in broker.records(topic)] == [str(each).encode() for each in range(8)]


def test_so_many_requests_fail_in_all(broker: Broker, topic: str) -> None:
    failure = broker.fail_next("Produce", "NOT_ENOUGH_REPLICAS", 3)
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "retry.backoff.ms": 10, **QUIET})
    for partition in range(8):
        producer.produce(topic, b"x", partition=partition)
    assert producer.flush(30) == 0
    assert failure.met == 3
    assert len(broker.records(topic)) == 8


def test_latency_and_lost_answers(broker: Broker, topic: str) -> None:
    config = {"bootstrap.servers": broker.bootstrap_servers, "reconnect.backoff.ms": 10, **QUIET}
    producer = Producer({**config, "enable.idempotence": True})
    producer.produce(topic, b"zero", partition=0)
    assert producer.flush(30) == 0
    failure = broker.disconnect("Produce", 1, handled=True)
    assert failure is not None
    with broker.latency("200ms", "Produce"):
        begun_s = time.monotonic()
        producer.produce(topic, b"one", partition=0)
        assert producer.flush(30) == 0
        assert time.monotonic() - begun_s > 0.2
    assert failure.met == 1
    assert [each.value for each in broker.records(topic)] == [b"zero", b"one"]


def test_one_is_killed(broker: Broker, topic: str) -> None:
    broker.advance("10m")
    for partition in range(8):
        broker.produce(topic, "later", partition=partition, headers={"TIMER_DELAY_SEC": "3600"})
    broker.kill(2)
    if not hasattr(broker.processes, "of"):  # workers come back by themselves
        with pytest.raises(ValueError, match="automatically"):
            broker.restart(2)
    else:
        broker.restart(2)
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "reconnect.backoff.ms": 10, **QUIET})
    for partition in range(8):
        producer.produce(topic, b"now", partition=partition)
    assert producer.flush(60) == 0
    patiently(lambda: broker.advance("1h"))
    assert sorted(each.value or b"" for each in broker.records(topic)) == [b"later"] * 8 + [b"now"] * 8
    with pytest.raises(ValueError, match="no node 9"):
        broker.kill(9)


def test_all_are_killed(broker: Broker, topic: str) -> None:
    for partition in range(8):
        broker.produce(topic, "one", partition=partition)
    before = broker.now_ms, broker.bootstrap_servers
    broker.kill()
    assert not broker.is_running
    broker.restart()
    assert broker.bootstrap_servers == before[1]
    assert broker.now_ms >= before[0]
    assert [each.value for each in broker.records(topic)] == [b"one"] * 8


def patiently(work: object) -> None:
    """A process that was killed is not asked before it is back."""
    assert callable(work)
    until_s = time.monotonic() + 30
    while True:
        try:
            work()
        except OSError:
            assert time.monotonic() < until_s
            time.sleep(0.1)
        else:
            return


def test_a_snapshot_of_workers(tmp_path: Path) -> None:
    with Broker(workers=2) as broker:
        broker.produce("orders", "one")
        broker.advance("1h")
        broker.save(tmp_path / "saved")
    with Broker.from_snapshot(tmp_path / "saved", workers=2) as again:
        assert [each.value for each in again.records("orders")] == [b"one"]
        assert again.now_ms > (time.time() + 3000) * 1000


def test_a_worker_that_is_killed_has_another_pid() -> None:
    with Broker(workers=2) as broker:
        before = broker._ask("pid")
        broker.kill(1)
        assert not os.path.exists(f"/proc/{before[0]}/fd/0")  # noqa: PTH110
        now: list[int] = []

        def ask() -> None:
            now[:] = broker._ask("pid")

        patiently(ask)
        assert now[0] != before[0]
        assert now[1] == before[1]
