"""Handing records back with the three Python clients, against a running broker (B19, B35)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import Consumer, Producer
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer
from kafka.admin import NewTopic

import halfmoon.testing
from halfmoon.kafka import HandBack, attempts, original_topic

GROUP = "billing team"
SETTINGS = {
    "plugins": {"delay": {"levels": "10ms 20ms 100ms 150ms 200ms"}, "retry": {"max_reconsume_times": 2}},
    "topics": {"partitions": 1},
}

Seen = tuple[str, str, int]
"""The topic a record came from, the one it was sent to in the beginning, and how often it was handed back."""


@pytest.fixture
def broker() -> Iterator[halfmoon.testing.Broker]:
    with halfmoon.testing.Broker(config=SETTINGS) as running:
        client = KafkaAdminClient(bootstrap_servers=running.bootstrap_servers)
        back = HandBack(GROUP, None)
        client.create_topics([NewTopic(name, 1, 1) for name in ("orders", back.topic, back.dead_letters)])
        client.close()
        yield running


def expected(back: HandBack) -> list[Seen]:
    return [
        ("orders", "orders", 0),
        (back.topic, "orders", 1),
        (back.topic, "orders", 2),
        (back.dead_letters, "orders", 2),
    ]


def seen(record: Any) -> Seen:
    topic = record.topic() if callable(record.topic) else record.topic
    return topic, original_topic(record), attempts(record)


def test_confluent_kafka(broker: halfmoon.testing.Broker) -> None:
    address = {"bootstrap.servers": broker.bootstrap_servers}
    producer = Producer(address)
    producer.produce("orders", b"v", b"k", headers={"mine": "x"})
    producer.flush(10)
    back = HandBack(GROUP, producer)
    consumer = Consumer({**address, "group.id": GROUP, "auto.offset.reset": "earliest"})
    consumer.subscribe(["orders", back.topic, back.dead_letters])
    found: list[Seen] = []
    came_s = [time.monotonic()]
    while len(found) < 4:
        message = consumer.poll(10)
        assert message is not None, found
        assert message.error() is None
        assert (message.key(), message.value(), dict(message.headers())["mine"]) == (b"k", b"v", b"x")
        found.append(seen(message))
        came_s.append(time.monotonic())
        if found[-1][0] != back.dead_letters:
            back(message)
            back(message)  # and once more, as if the answer had been lost
            producer.flush(10)
    consumer.close()
    assert found == expected(back)
    assert came_s[2] - came_s[1] >= 0.1
    assert came_s[3] - came_s[2] >= 0.15


def test_kafka_python(broker: halfmoon.testing.Broker) -> None:
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap_servers)
    producer.send("orders", b"v").get(10)
    back = HandBack(GROUP, producer)
    consumer = KafkaConsumer(
        "orders", back.topic, back.dead_letters, group_id=GROUP, auto_offset_reset="earliest",
        bootstrap_servers=broker.bootstrap_servers, consumer_timeout_ms=10_000,
    )  # fmt: skip
    found: list[Seen] = []
    for record in consumer:
        found.append(seen(record))
        if len(found) == 4:
            break
        back(record).get(10)
    consumer.close()
    producer.close()
    assert found == expected(back)


def test_aiokafka(broker: halfmoon.testing.Broker) -> None:
    async def run() -> list[Seen]:
        producer = AIOKafkaProducer(bootstrap_servers=broker.bootstrap_servers)
        back = HandBack(GROUP, producer)
        consumer = AIOKafkaConsumer(
            "orders", back.topic, back.dead_letters, group_id=GROUP, auto_offset_reset="earliest",
            bootstrap_servers=broker.bootstrap_servers,
        )  # fmt: skip
        await producer.start()
        await consumer.start()
        found: list[Seen] = []
        try:
            await producer.send_and_wait("orders", b"v")
            while len(found) < 4:
                record = await asyncio.wait_for(consumer.getone(), 10)
                found.append(seen(record))
                if found[-1][0] != back.dead_letters:
                    await (await back(record))
        finally:
            await consumer.stop()
            await producer.stop()
        return found

    assert asyncio.run(run()) == expected(HandBack(GROUP, None))


def test_a_delay_of_ones_own_and_giving_up(broker: halfmoon.testing.Broker) -> None:
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap_servers)
    for value in (b"soon", b"level", b"never"):
        producer.send("orders", value)
    producer.flush()
    back = HandBack(GROUP, producer)
    consumer = KafkaConsumer(
        "orders", back.topic, back.dead_letters, group_id=GROUP, auto_offset_reset="earliest",
        bootstrap_servers=broker.bootstrap_servers, consumer_timeout_ms=10_000,
    )  # fmt: skip
    found: list[tuple[str, bytes]] = []
    for record in consumer:
        found.append((record.topic, record.value))
        if len(found) == 6:
            break
        if record.topic == "orders":
            if record.value == b"soon":
                back(record, delay_ms=50).get(10)
            elif record.value == b"level":
                back(record, level=5).get(10)
            else:
                back.give_up(record).get(10)
    consumer.close()
    producer.close()
    assert sorted(found[3:]) == [(back.dead_letters, b"never"), (back.topic, b"level"), (back.topic, b"soon")]
    assert found.index((back.topic, b"soon")) < found.index((back.topic, b"level"))
