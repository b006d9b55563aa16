"""Quotas with real clients: they slow down without an error, and get what they may."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from kafka import KafkaProducer

from halfmoon.testing import Broker
from tests.clients.asking import ask, made

DESCRIBE, ALTER = 48, 49
RATE = 200_000
"""Bytes per second."""


@pytest.fixture
def broker() -> Iterator[Broker]:
    """Rates are measured over two seconds instead of ten, so that what may be had at once is soon used up."""
    with Broker(config={"limits": {"quota_windows": 3}}) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        admin.create_topics([NewTopic("t", 1, 1)])["t"].result(10)
        yield broker


def limit(broker: Broker, key: str, value: float | None, **entity: str | None) -> None:
    parts = [
        made(ALTER, "EntryData.EntityData", entity_type=kind.replace("_", "-"), entity_name=name)
        for kind, name in entity.items()
    ]
    op = made(ALTER, "EntryData.OpData", key=key, value=value or 0.0, remove=value is None)
    entry = made(ALTER, "EntryData", entity=parts, ops=[op])
    answer = ask(broker.bootstrap_servers, ALTER, 1, entries=[entry], validate_only=False)
    assert [each.error_code for each in answer.entries] == [0]


def share(turn: Callable[[], int], measured_s: float = 6.0) -> float:
    """How much of what is allowed `turn` (which returns bytes) gets through: in the time, and two seconds' worth at
    once. Rates come in waves as long as their windows; tests in virtual time measure over many of them.
    """
    done, start = 0, time.monotonic()
    while time.monotonic() - start < measured_s:
        done += turn()
    return done / RATE / (time.monotonic() - start + 2)


@pytest.mark.timeout(60)
def test_librdkafkas_producer(broker: Broker) -> None:
    limit(broker, "producer_byte_rate", RATE, client_id="limited")
    throttles: list[int] = []
    producer = Producer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "client.id": "limited",
            "linger.ms": 5,
            "batch.size": 20_000,
            "queue.buffering.max.messages": 200,
            "throttle_cb": lambda event: throttles.append(int(event.throttle_time * 1000)),
        }
    )
    acknowledged = 0

    def delivered(error: object, message: object) -> None:
        nonlocal acknowledged
        assert error is None
        acknowledged += 1_000

    def turn() -> int:
        before = acknowledged
        try:
            producer.produce("t", b"x" * 1_000, on_delivery=delivered)
        except BufferError:
            producer.poll(0.02)
        producer.poll(0)
        return acknowledged - before

    assert 0.6 < share(turn) < 1.1
    assert any(throttles)
    limit(broker, "producer_byte_rate", None, client_id="limited")
    assert share(turn, 1.0) > 3
    producer.flush(10)


@pytest.mark.timeout(60)
def test_librdkafkas_consumer(broker: Broker) -> None:
    filler = Producer({"bootstrap.servers": broker.bootstrap_servers, "batch.size": 20_000})
    for _ in range(5_000):
        filler.produce("t", b"x" * 1_000)
        filler.poll(0)
    filler.flush(10)
    limit(broker, "consumer_byte_rate", RATE, user=None)
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": "g",
            "enable.auto.commit": False,
            "fetch.max.bytes": 1 << 20,
            "max.partition.fetch.bytes": 40_000,
            "message.max.bytes": 100_000,
            "fetch.queue.backoff.ms": 1,
        }
    )
    consumer.assign([TopicPartition("t", 0, 0)])

    def turn() -> int:
        message = consumer.poll(0.05)
        assert message is None or message.error() is None
        return 0 if message is None else len(message.value())

    got = share(turn)
    consumer.close()
    assert 0.6 < got < 1.1


@pytest.mark.timeout(60)
def test_kafka_pythons_producer(broker: Broker) -> None:
    limit(broker, "producer_byte_rate", RATE, user="ANONYMOUS")
    producer = KafkaProducer(
        bootstrap_servers=broker.bootstrap_servers, batch_size=20_000, linger_ms=5, enable_idempotence=False
    )

    def turn() -> int:
        sent = [producer.send("t", b"x" * 1_000) for _ in range(20)]
        for each in sent:
            each.get(20)
        return 20_000

    sent = share(turn)
    producer.close()
    assert 0.6 < sent < 1.1


def test_quotas_are_told(broker: Broker) -> None:
    limit(broker, "producer_byte_rate", 1024, user="alice", client_id=None)
    limit(broker, "request_percentage", 12.5, client_id="c")
    limit(broker, "connection_creation_rate", 100, ip="127.0.0.1")
    broker.restart()

    def told(strict: bool, *components: object) -> list[object]:
        answer = ask(broker.bootstrap_servers, DESCRIBE, 1, components=list(components), strict=strict)
        assert answer.error_code == 0
        return [
            ({part.entity_type: part.entity_name for part in entry.entity}, {v.key: v.value for v in entry.values})
            for entry in answer.entries
        ]

    def component(kind: str, match_type: int, match: str | None = None) -> object:
        return made(DESCRIBE, "ComponentData", entity_type=kind, match_type=match_type, match=match)

    alice: object = ({"client-id": None, "user": "alice"}, {"producer_byte_rate": 1024.0})
    everything = told(False)
    assert len(everything) == 3
    assert alice in everything
    assert told(False, component("user", 2)) == [alice]
    assert told(True, component("user", 2)) == []
    assert told(True, component("user", 0, "alice"), component("client-id", 1)) == [alice]
    assert told(True, component("client-id", 0, "c")) == [({"client-id": "c"}, {"request_percentage": 12.5})]
    assert told(False, component("ip", 2)) == [({"ip": "127.0.0.1"}, {"connection_creation_rate": 100.0})]
