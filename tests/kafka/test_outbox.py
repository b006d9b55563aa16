"""Half messages with the three Python clients, against a running broker (B31, B32, B40)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from kafka import KafkaConsumer, KafkaProducer

import halfmoon.testing
from halfmoon.kafka import TransactionalOutbox
from tests import several_workers

GROUP = "web shop"
SETTINGS = {
    "plugins": {"transaction": {"timeout": "200ms", "check_interval": "300ms", "check_max": 5}},
    "topics": {"partitions": 1},
}


@pytest.fixture
def broker() -> Iterator[halfmoon.testing.Broker]:
    with halfmoon.testing.Broker(config=SETTINGS) as running:
        client = AdminClient({"bootstrap.servers": running.bootstrap_servers})
        # As many partitions as the broker likes: one of "orders", and of the other one for each shard. An older
        # kafka-python, with which this runs, too, cannot ask for that.
        names = "orders", TransactionalOutbox(GROUP, None).check_topic
        for made in client.create_topics([NewTopic(name) for name in names]).values():
            made.result(30)
        yield running


def test_confluent_kafka(broker: halfmoon.testing.Broker) -> None:
    address = {"bootstrap.servers": broker.bootstrap_servers}
    producer = Producer(address)
    outbox = TransactionalOutbox(GROUP, producer)
    names = [outbox.prepare("orders", b"%d" % number, b"k", [("mine", b"x")])[0] for number in range(10)]
    assert producer.flush(10) == 0
    for number, name in enumerate(names):
        (outbox.rollback if number % 2 else outbox.commit)(name)
    assert producer.flush(10) == 0
    consumer = Consumer({**address, "group.id": "g", "auto.offset.reset": "earliest"})
    consumer.subscribe(["orders"])
    found = []
    while len(found) < 5:
        message = consumer.poll(10)
        assert message is not None, found
        assert message.error() is None
        headers = dict(message.headers() or ())
        assert (message.key(), headers["mine"]) == (b"k", b"x")
        assert "TRAN_MSG" not in headers
        found.append(message.value())
    assert consumer.poll(0.3) is None
    consumer.close()
    # Ends are records of a topic: where that has several partitions, those of one client overtake each other.
    assert (sorted(found) if several_workers.WORKERS else found) == [b"0", b"2", b"4", b"6", b"8"]


def test_kafka_python_answers_checks(broker: halfmoon.testing.Broker) -> None:
    """The program that sent the messages has died; another one of its group answers for it."""
    database = {"paid"}
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap_servers)
    outbox = TransactionalOutbox(GROUP, producer)
    for name in ("paid", "given up"):
        told, sent = outbox.prepare("orders", name.encode(), transaction=name)
        assert told == name
        sent.get(10)
    consumer = KafkaConsumer(
        "orders", outbox.check_topic, group_id="g", auto_offset_reset="earliest",
        bootstrap_servers=broker.bootstrap_servers, consumer_timeout_ms=2_000,
    )  # fmt: skip
    asked: set[str] = set()
    delivered: list[bytes] = []
    for record in consumer:
        if record.topic == "orders":
            delivered.append(record.value)
        else:
            name = outbox.transaction_of(record)
            assert dict(record.headers)["REAL_TOPIC"] == b"orders"
            asked.add(name)
            (outbox.commit if name in database else outbox.rollback)(name).get(10)
    consumer.close()
    producer.close()
    assert asked == {"paid", "given up"}
    assert delivered == [b"paid"]


def test_aiokafka(broker: halfmoon.testing.Broker) -> None:
    async def run() -> list[Any]:
        producer = AIOKafkaProducer(bootstrap_servers=broker.bootstrap_servers)
        outbox = TransactionalOutbox(GROUP, producer)
        consumer = AIOKafkaConsumer(
            "orders", group_id="g", auto_offset_reset="earliest", bootstrap_servers=broker.bootstrap_servers
        )
        await producer.start()
        await consumer.start()
        try:
            for value, end in ((b"a", outbox.commit), (b"b", outbox.rollback), (b"c", outbox.commit)):
                name, sent = outbox.prepare("orders", value)
                await sent
                await end(name)
            return [(await asyncio.wait_for(consumer.getone(), 10)).value for _ in range(2)]
        finally:
            await consumer.stop()
            await producer.stop()

    assert asyncio.run(run()) == [b"a", b"c"]


def test_a_record_that_is_no_check() -> None:
    class Record:
        topic, partition, offset, key, value, headers = "t", 0, 0, None, b"", ()

    with pytest.raises(ValueError, match="no check"):
        TransactionalOutbox(GROUP, None).transaction_of(Record())


def test_the_old_name_of_check_topic_works_and_warns() -> None:
    outbox = TransactionalOutbox("shop", None)
    assert outbox.check_topic == "check.shop"
    with pytest.warns(DeprecationWarning, match="check_topic"):
        assert outbox.checks == outbox.check_topic
