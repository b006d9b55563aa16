"""Message TTL by the clients of others, and by ours: who is given an expired message, and who is not."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import AcknowledgeType, Consumer, Producer, ShareConsumer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic, ResourceType
from kafka import KafkaConsumer, KafkaProducer

import halfmoon.client
from halfmoon.client import ConsumeFrom, Context, Message, PushConsumer, ReceivedMessage, Status
from halfmoon.kafka import Nack
from halfmoon.testing import Broker
from tests.clients.polling import DEADLINE_S, until, wait_for
from tests.several_workers import metric, metrics_of

pytestmark = pytest.mark.workers

TTL, ACTION = "halfmoon.ttl.ms", "halfmoon.ttl.action"
OLD_MS = 3_600_000
OVER = b"expired: its TTL was over"

Send = Callable[[Broker, str, bytes, int, int], None]
"""(broker, topic, value, age in ms, TTL in ms)"""


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    config = {
        "groups": {"share": {"auto_offset_reset": "earliest"}},
        "listeners": {
            "http": {"bind": "127.0.0.1:0"},
            "rocketmq": {"bind": "127.0.0.1:0", "namesrv": "127.0.0.1:0"},
        },
        "plugins": {"delay": {"levels": "1s 1s 1s 1s"}},
    }
    with Broker(config=config) as started:
        yield started


@pytest.fixture
def topic(broker: Broker, name: str) -> str:
    make(broker, name)
    return name


def make(broker: Broker, name: str, **configs: str) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    said = {key.replace("_", "."): value for key, value in configs.items()}
    admin.create_topics([NewTopic(name, 1, 1, config=said)])[name].result(10)


def by_confluent(broker: Broker, topic: str, value: bytes, age_ms: int, ttl_ms: int) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    producer.produce(topic, value, headers={TTL: str(ttl_ms)}, timestamp=int(time.time() * 1_000) - age_ms)
    assert producer.flush(10) == 0


def by_kafka_python(broker: Broker, topic: str, value: bytes, age_ms: int, ttl_ms: int) -> None:
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap_servers)
    born_ms = int(time.time() * 1_000) - age_ms
    producer.send(topic, value, headers=[(TTL, b"%d" % ttl_ms)], timestamp_ms=born_ms).get(10)
    producer.close()


def by_aiokafka(broker: Broker, topic: str, value: bytes, age_ms: int, ttl_ms: int) -> None:
    async def run() -> None:
        async with AIOKafkaProducer(bootstrap_servers=broker.bootstrap_servers) as producer:
            born_ms = int(time.time() * 1_000) - age_ms
            headers = [(TTL, b"%d" % ttl_ms)]
            await producer.send_and_wait(topic, value, headers=headers, timestamp_ms=born_ms)

    asyncio.run(run())


def by_our_client(broker: Broker, topic: str, value: bytes, age_ms: int, ttl_ms: int) -> None:
    """It has no say in the time: what is to be old lives for a millisecond."""
    with halfmoon.client.Producer("makers", namesrv=broker.namesrv) as producer:
        producer.send(Message(topic, value, properties={TTL: "1" if age_ms else str(ttl_ms)}))
    if age_ms:
        threading.Event().wait(0.01)


SENDERS = [by_confluent, by_kafka_python, by_aiokafka, by_our_client]


def fetched(broker: Broker, topic: str, count: int) -> list[bytes | None]:
    """By a plain consumer."""
    consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": f"plain-{topic}"})
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: list[bytes | None] = []
    end = time.monotonic() + DEADLINE_S
    while len(found) < count:
        message = consumer.poll(0.2)
        assert time.monotonic() < end, found
        if message is not None and message.error() is None:
            found.append(message.value())
    consumer.close()
    return found


def shared(broker: Broker, topic: str, count: int) -> list[bytes | None]:
    """By a share group, called as the topic."""
    consumer = ShareConsumer(
        {
            "bootstrap.servers": broker.bootstrap_servers, "group.id": topic, "log_level": 3,
            "share.acknowledgement.mode": "explicit",
        }
    )  # fmt: skip
    consumer.subscribe([topic])
    found: list[bytes | None] = []
    end = time.monotonic() + DEADLINE_S
    try:
        while len(found) < count:
            assert time.monotonic() < end, found
            for message in consumer.poll(0.3):
                if message.error() is None:
                    found.append(message.value())
                    consumer.acknowledge(message, AcknowledgeType.ACCEPT)
            consumer.commit_sync(10)
    finally:
        consumer.close()
    return found


class Pulled:
    """By a consumer of RocketMQ's model, of a group that is called as the topic."""

    def __init__(self, broker: Broker, topic: str) -> None:
        self.bodies: list[bytes] = []
        self._consumer = PushConsumer(
            topic, self._listen, {topic: "*"}, consume_from=ConsumeFrom.FIRST, namesrv=broker.namesrv
        )

    def _listen(self, messages: Sequence[ReceivedMessage], context: Context) -> Status:
        self.bodies += [message.body for message in messages]
        return Status.SUCCESS

    def __enter__(self) -> Pulled:
        self._consumer.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._consumer.close()


def dead_letters(broker: Broker, topic: str, count: int) -> dict[bytes, bytes]:
    """Value → reason, of the dead letters of the group that is called as the topic."""
    consumer = KafkaConsumer(
        f"dlq.{topic}", bootstrap_servers=broker.bootstrap_servers, auto_offset_reset="earliest", group_id=None,
        consumer_timeout_ms=1_000,
    )  # fmt: skip

    def step() -> dict[bytes, bytes]:
        for record in consumer:
            found[record.value] = dict(record.headers)["halfmoon.reason"]
        return found if len(found) >= count else {}

    found: dict[bytes, bytes] = {}
    try:
        return until(step)
    finally:
        consumer.close()


@pytest.mark.parametrize("send", SENDERS)
def test_who_gets_it(broker: Broker, topic: str, send: Send) -> None:
    send(broker, topic, b"old", OLD_MS, 60_000)
    send(broker, topic, b"new", 0, 600_000)
    assert fetched(broker, topic, 2) == [b"old", b"new"]
    assert shared(broker, topic, 1) == [b"new"]
    with Pulled(broker, f"{topic}") as pulled:
        wait_for(lambda: pulled.bodies)
        assert pulled.bodies == [b"new"]


def test_aiokafka_gets_all(broker: Broker, topic: str) -> None:
    async def run() -> list[Any]:
        consumer = AIOKafkaConsumer(
            topic, bootstrap_servers=broker.bootstrap_servers, auto_offset_reset="earliest", group_id=None
        )
        async with consumer:
            return [(await asyncio.wait_for(consumer.getone(), 20)).value for _ in range(2)]

    by_aiokafka(broker, topic, b"old", OLD_MS, 60_000)
    by_aiokafka(broker, topic, b"new", 0, 60_000)
    assert asyncio.run(run()) == [b"old", b"new"]


def test_a_share_groups_dead_letter(broker: Broker, name: str) -> None:
    make(broker, name, halfmoon_ttl_action="dead-letter")
    by_confluent(broker, name, b"old", OLD_MS, 60_000)
    by_confluent(broker, name, b"new", 0, 600_000)
    assert shared(broker, name, 1) == [b"new"]
    found = dead_letters(broker, name, 1)
    assert found == {b"old": OVER + b" (given out 0 times)"}
    shown = metrics_of(broker)
    assert metric(shown, "halfmoon_expired_total", where="share", outcome="dead_lettered") >= 1


def test_a_pulls_dead_letter(broker: Broker, name: str) -> None:
    make(broker, name, halfmoon_ttl_action="dead-letter")
    for number in range(50):
        by_confluent(broker, name, b"old %d" % number, OLD_MS, 60_000)
    by_confluent(broker, name, b"new", 0, 600_000)
    for _ in range(2):
        with Pulled(broker, name) as pulled:
            found = dead_letters(broker, name, 50)
            if _ == 0:
                wait_for(lambda pulled=pulled: pulled.bodies)
                assert pulled.bodies == [b"new"]
    assert found == {b"old %d" % number: OVER for number in range(50)}
    consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "watcher"})
    assert consumer.get_watermark_offsets(TopicPartition(f"dlq.{name}", 0), 10) == (0, 50)
    consumer.close()


def test_the_topics_ttl_can_be_set_later(broker: Broker, topic: str) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    producer.produce(topic, b"old", timestamp=int(time.time() * 1_000) - OLD_MS)
    producer.produce(topic, b"new")
    assert producer.flush(10) == 0
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    entry = ConfigEntry(TTL, "60000", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    admin.incremental_alter_configs([resource])[resource].result(10)
    assert shared(broker, topic, 1) == [b"new"]
    assert fetched(broker, topic, 2) == [b"old", b"new"]


def test_a_redelivery_that_comes_too_late(broker: Broker, name: str) -> None:
    """The record is of use for less than its delay of a second."""
    make(broker, name, halfmoon_ttl_action="dead-letter")
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    nack = Nack(name, producer)
    consumer = Consumer(
        {"bootstrap.servers": broker.bootstrap_servers, "group.id": name, "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([name, nack.topic])
    by_confluent(broker, name, b"short", 0, 500)
    by_confluent(broker, name, b"long", 0, 600_000)
    seen: list[tuple[str, bytes]] = []

    def step() -> bool:
        message = consumer.poll(0.2)
        if message is not None and message.error() is None:
            seen.append((message.topic(), message.value()))
            if message.topic() == name:
                nack(message)
                nack.flush(10)
        return len(seen) == 3

    until(step)
    consumer.close()
    assert seen == [(name, b"short"), (name, b"long"), (nack.topic, b"long")]
    assert dead_letters(broker, name, 1) == {b"short": OVER}


def test_a_view(broker: Broker, topic: str) -> None:
    by_confluent(broker, topic, b"old", OLD_MS, 60_000)
    by_confluent(broker, topic, b"new", 0, 600_000)
    make(broker, f"{topic}.all", halfmoon_view_source=topic, halfmoon_view_tag="*")
    assert fetched(broker, f"{topic}.all", 1) == [b"new"]


def test_a_wrong_ttl_is_refused(broker: Broker, topic: str) -> None:
    refused: list[Any] = []
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    producer.produce(topic, b"v", headers={TTL: "5s"}, on_delivery=lambda error, _: refused.append(error))
    assert producer.flush(10) == 0
    assert refused[0].name() == "INVALID_RECORD"
