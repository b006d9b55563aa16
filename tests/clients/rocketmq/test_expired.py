"""Messages whose TTL is over, by RocketMQ's Java client: sent with a property, pulled by a push consumer."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType
from kafka import KafkaConsumer

from tests.clients.polling import until
from tests.clients.rocketmq.java import Clients

pytestmark = pytest.mark.spark
TTL = "halfmoon.ttl.ms"
OVER = b"expired: its TTL was over"


def dead_letters_of(clients: Clients, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": clients.broker.bootstrap_servers})
    entry = ConfigEntry("halfmoon.ttl.action", "dead-letter", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    admin.incremental_alter_configs([resource])[resource].result(10)


def send(clients: Clients, producer: Any, topic: str, content: str, ttl_ms: int, **setters: int) -> None:
    message = clients.message(topic, "T", content, **{TTL: str(ttl_ms)})
    for setter, value in setters.items():
        getattr(message, setter)(value)
    assert producer.send(message).getSendStatus().toString() == "SEND_OK"


def dead(clients: Clients, group: str, count: int) -> list[tuple[bytes, bytes]]:
    """Value and reason of the dead letters of a group, as soon as there are so many."""
    consumer = KafkaConsumer(
        f"dlq.{group}", bootstrap_servers=clients.broker.bootstrap_servers, auto_offset_reset="earliest",
        group_id=None, consumer_timeout_ms=500,
    )  # fmt: skip
    found: list[tuple[bytes, bytes]] = []

    def read() -> bool:
        found.extend((record.value, dict(record.headers)["halfmoon.reason"]) for record in consumer)
        return len(found) >= count

    until(read)
    consumer.close()
    return found


def test_a_consumer_that_starts_later_gets_what_is_still_of_use(clients: Clients, producer: Any) -> None:
    topic, group = clients.topic(), clients.name("group")
    dead_letters_of(clients, topic)
    for number in range(3):
        send(clients, producer, topic, f"short {number}", 1)
        send(clients, producer, topic, f"long {number}", 600_000)
    got = clients.listen(clients.push(group, topic))
    got.exactly(3)
    assert sorted(got.bodies()) == ["long 0", "long 1", "long 2"]
    assert got.messages[0].getUserProperty(TTL) == "600000"
    assert dead(clients, group, 3) == [(b"short %d" % number, OVER) for number in range(3)]


def test_the_ttl_of_a_delayed_message_begins_when_it_is_due(clients: Clients, producer: Any) -> None:
    topic = clients.topic()
    got = clients.listen(clients.push(None, topic))
    send(clients, producer, topic, "delayed", 500, setDelayTimeMs=1_000)
    got.exactly(1)


def test_what_is_sent_back_and_expires_is_not_redelivered(clients: Clients, producer: Any) -> None:
    """Its delays here are 500 ms, 1.5 s and 3 s: the third ends later than its TTL, however slow the machine is."""
    topic, group = clients.topic(), clients.name("group")
    dead_letters_of(clients, topic)
    got = clients.listen(clients.push(group, topic), lambda message, context: "RECONSUME_LATER")
    send(clients, producer, topic, "short", 4_500)
    assert dead(clients, group, 1) == [(b"short", OVER)]
    got.exactly(len(got), quiet_s=1)
    assert len(got) <= 3
