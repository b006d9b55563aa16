"""`records` and `produce`: what is in a topic, as any client would have it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from kafka.partitioner.default import murmur2 as kafka_murmur2

from halfmoon.testing import Broker, Record
from halfmoon.testing.records import murmur2
from tests.testing.test_broker import QUIET


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as made:
        yield made


def test_what_is_produced_is_read(broker: Broker, halfmoon_topic: str) -> None:
    made = broker.produce(
        halfmoon_topic, "one", key=b"k", headers={"a": "1", "b": None}, timestamp_ms=1_700_000_000_000
    )
    expected = Record(halfmoon_topic, 0, 0, 1_700_000_000_000, b"k", b"one", (("a", b"1"), ("b", None)))
    assert made == expected
    assert broker.records(halfmoon_topic) == [expected]
    assert (expected.header("a"), expected.header("b"), expected.header("c")) == (b"1", None, None)
    assert broker.produce(halfmoon_topic, None, key="k").offset == 1
    assert [each.value for each in broker.records(halfmoon_topic)] == [b"one", None]


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_batches_of_clients_are_read(broker: Broker, halfmoon_topic: str, codec: str) -> None:
    producer = Producer({
        "bootstrap.servers": broker.bootstrap_servers, "compression.type": codec, "linger.ms": 20, **QUIET,
    })  # fmt: skip
    expected = [f"value {number}".encode() for number in range(2_000)]
    for value in expected:
        producer.produce(halfmoon_topic, value, partition=0)
    assert producer.flush(20) == 0
    assert [each.value for each in broker.records(halfmoon_topic)] == expected
    assert [each.offset for each in broker.records(halfmoon_topic)] == list(range(2_000))


def test_partitions_come_one_after_the_other(broker: Broker, halfmoon_topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers, **QUIET})
    admin.create_topics([NewTopic(halfmoon_topic, 3, 1)])[halfmoon_topic].result(10)
    for partition in (2, 0, 1):
        broker.produce(halfmoon_topic, str(partition), partition=partition)
    assert [(each.partition, each.value) for each in broker.records(halfmoon_topic)] == [
        (0, b"0"), (1, b"1"), (2, b"2"),
    ]  # fmt: skip
    assert [each.value for each in broker.records(halfmoon_topic, partition=2)] == [b"2"]
    with pytest.raises(LookupError, match="no partition 3"):
        broker.records(halfmoon_topic, partition=3)
    with pytest.raises(LookupError, match="no partition 3"):
        broker.produce(halfmoon_topic, "x", partition=3)


def test_a_key_has_the_partition_that_javas_clients_give_it(broker: Broker, halfmoon_topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers, **QUIET})
    admin.create_topics([NewTopic(halfmoon_topic, 7, 1)])[halfmoon_topic].result(10)
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "partitioner": "murmur2", **QUIET})
    for number in range(40):
        producer.produce(halfmoon_topic, b"librdkafka", key=str(number).encode() * number)
        broker.produce(halfmoon_topic, "kit", key=str(number).encode() * number)
    assert producer.flush(20) == 0
    places: dict[bytes | None, set[int]] = {}
    for each in broker.records(halfmoon_topic):
        if each.key:  # librdkafka gives an empty one any
            places.setdefault(each.key, set()).add(each.partition)
    assert len(places) == 39
    assert all(len(found) == 1 for found in places.values())
    for length in range(20):
        data = bytes(range(length))
        assert murmur2(data) & 0x7FFFFFFF == kafka_murmur2(data) & 0x7FFFFFFF


def test_transactions(broker: Broker, halfmoon_topic: str) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "transactional.id": halfmoon_topic, **QUIET})
    producer.init_transactions(10)
    for value, commits in ((b"one", True), (b"two", False), (b"three", True)):
        producer.begin_transaction()
        producer.produce(halfmoon_topic, value)
        producer.flush(10)
        producer.commit_transaction(10) if commits else producer.abort_transaction(10)
    broker.produce(halfmoon_topic, "four")
    assert [each.value for each in broker.records(halfmoon_topic)] == [b"one", b"two", b"three", b"four"]
    assert [each.value for each in broker.records(halfmoon_topic, committed=True)] == [b"one", b"three", b"four"]
    producer.begin_transaction()
    producer.produce(halfmoon_topic, b"open")
    producer.flush(10)
    broker.produce(halfmoon_topic, "six")
    assert [each.value for each in broker.records(halfmoon_topic, committed=True)] == [b"one", b"three", b"four"]
    producer.abort_transaction(10)


def test_it_can_be_waited_for(broker: Broker, halfmoon_topic: str) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "linger.ms": 300, **QUIET})
    for _ in range(3):
        producer.produce(halfmoon_topic, b"x")
    assert len(broker.records(halfmoon_topic, at_least=3)) == 3
    with pytest.raises(TimeoutError, match=r"has 3 records after 0\.1 s, not 4"):
        broker.records(halfmoon_topic, at_least=4, timeout_s=0.1)
    assert producer.flush(10) == 0


def test_what_is_not_there(broker: Broker, halfmoon_topic: str) -> None:
    with pytest.raises(LookupError, match="there is no topic"):
        broker.records(halfmoon_topic)
    with pytest.raises(LookupError, match="there is no topic"):
        broker.records(halfmoon_topic, at_least=1, timeout_s=0.05)
    with pytest.raises(RuntimeError, match="INVALID_TOPIC_EXCEPTION"):
        broker.produce("a/b", "x")
    with pytest.raises(AssertionError, match="not running"):
        Broker().records("t")


def test_deleted_records_are_none(broker: Broker, halfmoon_topic: str) -> None:
    from confluent_kafka import TopicPartition

    for value in ("one", "two"):
        broker.produce(halfmoon_topic, value)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers, **QUIET})
    for each in admin.delete_records([TopicPartition(halfmoon_topic, 0, 1)]).values():
        each.result(10)
    assert [(each.offset, each.value) for each in broker.records(halfmoon_topic)] == [(1, b"two")]


def test_a_secure_broker_is_read_without_a_password() -> None:
    with Broker(secure=True) as broker:
        assert broker.produce("orders", "one").offset == 0
        assert [each.value for each in broker.records("orders")] == [b"one"]


def test_failures_spare_the_kit(broker: Broker, halfmoon_topic: str) -> None:
    with broker.fail_next("Produce", "INVALID_RECORD"), broker.latency("60s"):
        broker.produce(halfmoon_topic, "one")
        assert len(broker.records(halfmoon_topic)) == 1
