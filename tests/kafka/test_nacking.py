"""Negative acknowledgement with the three Python clients, against a running broker (B19, B35)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from typing import Any

import confluent_kafka.admin
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer
from kafka.admin import NewTopic
from kafka.future import Future

import halfmoon.kafka
import halfmoon.testing
from halfmoon.kafka import Nack, NotStoredError, attempts, original_topic

GROUP = "billing team"
SETTINGS = {
    "plugins": {"delay": {"levels": "10ms 20ms 100ms 150ms 200ms"}, "retry": {"max_reconsume_times": 2}},
    "topics": {"partitions": 1},
}

Seen = tuple[str, str, int]
"""The topic a record came from, the one it was produced to, and how often it was negatively acknowledged."""


@pytest.fixture
def broker() -> Iterator[halfmoon.testing.Broker]:
    with halfmoon.testing.Broker(config=SETTINGS) as running:
        client = KafkaAdminClient(bootstrap_servers=running.bootstrap_servers)
        nack = Nack(GROUP, None)
        client.create_topics([NewTopic(name, 1, 1) for name in ("orders", nack.topic, nack.dead_letters)])
        client.close()
        yield running


def expected(nack: Nack) -> list[Seen]:
    return [
        ("orders", "orders", 0),
        (nack.topic, "orders", 1),
        (nack.topic, "orders", 2),
        (nack.dead_letters, "orders", 2),
    ]


def seen(record: Any) -> Seen:
    topic = record.topic() if callable(record.topic) else record.topic
    return topic, original_topic(record), attempts(record)


def test_confluent_kafka(broker: halfmoon.testing.Broker) -> None:
    address = {"bootstrap.servers": broker.bootstrap_servers}
    producer = Producer(address)
    producer.produce("orders", b"v", b"k", headers={"mine": "x"})
    producer.flush(10)
    nack = Nack(GROUP, producer)
    consumer = Consumer({**address, "group.id": GROUP, "auto.offset.reset": "earliest"})
    consumer.subscribe(["orders", nack.topic, nack.dead_letters])
    found: list[Seen] = []
    came_s = [time.monotonic()]
    while len(found) < 4:
        message = consumer.poll(10)
        assert message is not None, found
        assert message.error() is None
        assert (message.key(), message.value(), dict(message.headers())["mine"]) == (b"k", b"v", b"x")
        found.append(seen(message))
        came_s.append(time.monotonic())
        if found[-1][0] != nack.dead_letters:
            nack(message)
            nack(message)  # and once more, as if the answer had been lost
            producer.flush(10)
    consumer.close()
    assert found == expected(nack)
    assert came_s[2] - came_s[1] >= 0.1
    assert came_s[3] - came_s[2] >= 0.15


def test_kafka_python(broker: halfmoon.testing.Broker) -> None:
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap_servers)
    producer.send("orders", b"v").get(10)
    nack = Nack(GROUP, producer)
    consumer = KafkaConsumer(
        "orders", nack.topic, nack.dead_letters, group_id=GROUP, auto_offset_reset="earliest",
        bootstrap_servers=broker.bootstrap_servers, consumer_timeout_ms=10_000,
    )  # fmt: skip
    found: list[Seen] = []
    for record in consumer:
        found.append(seen(record))
        if len(found) == 4:
            break
        nack(record).get(10)
    consumer.close()
    producer.close()
    assert found == expected(nack)


def test_aiokafka(broker: halfmoon.testing.Broker) -> None:
    async def run() -> list[Seen]:
        producer = AIOKafkaProducer(bootstrap_servers=broker.bootstrap_servers)
        nack = Nack(GROUP, producer)
        consumer = AIOKafkaConsumer(
            "orders", nack.topic, nack.dead_letters, group_id=GROUP, auto_offset_reset="earliest",
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
                if found[-1][0] != nack.dead_letters:
                    await nack(record)
        finally:
            await consumer.stop()
            await producer.stop()
        return found

    assert asyncio.run(run()) == expected(Nack(GROUP, None))


def test_a_delay_of_ones_own_and_dead_lettering(broker: halfmoon.testing.Broker) -> None:
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap_servers)
    for value in (b"soon", b"level", b"never"):
        producer.send("orders", value)
    producer.flush()
    nack = Nack(GROUP, producer)
    consumer = KafkaConsumer(
        "orders", nack.topic, nack.dead_letters, group_id=GROUP, auto_offset_reset="earliest",
        bootstrap_servers=broker.bootstrap_servers, consumer_timeout_ms=10_000,
    )  # fmt: skip
    found: list[tuple[str, bytes]] = []
    for record in consumer:
        found.append((record.topic, record.value))
        if len(found) == 6:
            break
        if record.topic == "orders":
            if record.value == b"soon":
                nack(record, delay_ms=50).get(10)
            elif record.value == b"level":
                nack(record, level=5).get(10)
            else:
                nack.dead_letter(record).get(10)
    consumer.close()
    producer.close()
    assert sorted(found[3:]) == [(nack.dead_letters, b"never"), (nack.topic, b"level"), (nack.topic, b"soon")]
    assert found.index((nack.topic, b"soon")) < found.index((nack.topic, b"level"))


class BadOrderError(ValueError):
    pass


def test_confluent_kafka_with_policies(broker: halfmoon.testing.Broker) -> None:
    """What the group states: 30 ms, and no retry of a ValueError. And what one message states: one retry at once."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    stated = {"halfmoon.retry.steps": "30ms,40ms", "halfmoon.retry.not.retryable": "ValueError,KeyError"}
    entries = [ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET) for name, value in stated.items()]
    (altered,) = admin.incremental_alter_configs(
        [ConfigResource(ResourceType.GROUP, GROUP, incremental_configs=entries)]
    ).values()
    altered.result(10)
    (made,) = admin.create_topics([confluent_kafka.admin.NewTopic("dlq.own", 1)]).values()
    made.result(10)
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    for value in (b"later", b"bad", b"own"):
        producer.produce("orders", value)
    producer.flush(10)
    nack = Nack(GROUP, producer)
    config = {"bootstrap.servers": broker.bootstrap_servers, "group.id": GROUP, "auto.offset.reset": "earliest"}
    # Where the group's shard has no partition of it, the topic grows.
    consumer = Consumer({**config, "topic.metadata.refresh.interval.ms": 200})
    consumer.subscribe(["orders", nack.topic, nack.dead_letters, "dlq.own"])
    found: dict[bytes, list[tuple[str, int]]] = {b"later": [], b"bad": [], b"own": []}
    dead: dict[bytes, dict[str, bytes]] = {}
    while len(dead) < 3:
        message = consumer.poll(10)
        assert message is not None, found
        assert message.error() is None
        found[message.value()].append((message.topic(), attempts(message)))
        if message.topic().startswith("dlq."):
            dead[message.value()] = dict(message.headers())
        elif message.value() == b"later":
            nack(message, error=RuntimeError("busy")).result(10)
        elif message.value() == b"bad":
            nack(message, error=BadOrderError("no total")).result(10)
        else:
            nack(message, policy={"steps": ["1ms"], "dead_letter_topic": "dlq.own"}).result(10)
    consumer.close()
    assert found == {
        b"later": [("orders", 0), (nack.topic, 1), (nack.topic, 2), (nack.dead_letters, 2)],
        b"bad": [("orders", 0), (nack.dead_letters, 0)],
        b"own": [("orders", 0), (nack.topic, 1), ("dlq.own", 1)],
    }
    assert dead[b"bad"]["halfmoon.reason"] == f"not retryable: {__name__}.BadOrderError (ValueError)".encode()
    assert dead[b"bad"]["RETRY_ERROR_MESSAGE"] == b"no total"
    assert dead[b"later"]["RETRY_ERROR_CLASS"] == b"builtins.RuntimeError"
    assert dead[b"own"]["__dlq.errors.group"] == GROUP.encode()


def test_aiokafka_with_an_error_that_is_not_retried(broker: halfmoon.testing.Broker) -> None:
    async def run() -> dict[str, bytes]:
        async with AIOKafkaProducer(bootstrap_servers=broker.bootstrap_servers) as producer:
            nack = Nack(GROUP, producer)
            async with AIOKafkaConsumer(
                "orders", nack.topic, nack.dead_letters, group_id=GROUP, auto_offset_reset="earliest",
                bootstrap_servers=broker.bootstrap_servers,
            ) as consumer:  # fmt: skip
                await producer.send_and_wait("orders", b"v")
                record = await asyncio.wait_for(consumer.getone(), 10)
                await nack(record, error=BadOrderError(), policy={"not_retryable": ["BadOrderError"]})
                record = await asyncio.wait_for(consumer.getone(), 10)
                assert record.topic == nack.dead_letters
                return dict(record.headers)

    assert asyncio.run(run())["halfmoon.reason"] == f"not retryable: {__name__}.BadOrderError (BadOrderError)".encode()


def test_a_policy_that_cannot_be_read_is_refused_with_the_reason(broker: halfmoon.testing.Broker) -> None:
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap_servers, enable_idempotence=False)
    producer.send("orders", b"v", headers=[("RETRY_POLICY", b'{"steps": ["soon"]}')]).get(10)
    nack = Nack(GROUP, producer)
    consumer = KafkaConsumer(
        "orders", nack.topic, nack.dead_letters, group_id=GROUP, auto_offset_reset="earliest",
        bootstrap_servers=broker.bootstrap_servers, consumer_timeout_ms=10_000,
    )  # fmt: skip
    record = next(consumer)
    with pytest.raises(NotStoredError) as caught:
        nack(record).result(10)
    assert "RETRY_POLICY.steps[0]" in str(caught.value.__cause__)
    nack(record, policy={"steps": ["1ms"]}).result(10)
    assert next(consumer).topic == nack.topic
    nack.dead_letter(record).result(10)
    consumer.close()
    producer.close()


def test_the_old_names_work_and_warn() -> None:
    with pytest.warns(DeprecationWarning, match="Nack"):
        assert halfmoon.kafka.HandBack is Nack
    with pytest.raises(AttributeError, match="HandForward"):
        _ = halfmoon.kafka.HandForward
    with pytest.warns(DeprecationWarning, match="Nack"):
        exec("from halfmoon.kafka import HandBack", {})


def test_the_old_name_of_dead_letter_works_and_warns() -> None:
    class Remembering:
        """Of a producer only what is needed: the last record that was sent."""

        def __init__(self) -> None:
            self.sent: list[tuple[str, dict[str, Any]]] = []
            self.asked: list[str] = []

        def send(self, topic: str, **record: Any) -> Future:
            self.sent.append((topic, record))
            return Future()

        def partitions_for(self, topic: str) -> None:
            self.asked.append(topic)

    class Record:
        topic, partition, offset, key, value, headers = "orders", 0, 7, b"k", b"v", ()

    producer = Remembering()
    nack = Nack("billing", producer)
    assert producer.asked == ["retry.billing"]
    nack.dead_letter(Record())
    assert producer.sent[0][0] == "retry.billing"
    assert producer.sent[0][1]["headers"] == [("RETRY_OF", b"orders/0/7"), ("DELAY", b"-1")]
    with pytest.warns(DeprecationWarning, match="dead_letter"):
        nack.give_up(Record())
    assert producer.sent[1] == producer.sent[0]
