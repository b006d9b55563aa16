"""Delayed messages through clients: what they send, what they are told, what they get (B29, B30, B38)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient
from kafka import KafkaAdminClient, KafkaProducer
from kafka.admin import NewTopic

import halfmoon.testing
from halfmoon.errors import StartError
from halfmoon.plugins.store.delay.delays import LEVEL_TOPIC, TIMER_TOPIC

Message = tuple[bytes, dict[str, bytes], float]
"""Value, headers, and when it came (s)."""
SOON = {"levels": "100ms 300ms"}


@pytest.fixture
def broker() -> Iterator[halfmoon.testing.Broker]:
    with halfmoon.testing.Broker(config={"plugins": {"delay": SOON}, "topics": {"partitions": 1}}) as running:
        yield running


def create(broker: halfmoon.testing.Broker, name: str, **configs: str) -> None:
    client = KafkaAdminClient(bootstrap_servers=broker.bootstrap_servers)
    settings = {key.replace("_", "."): value for key, value in configs.items()}
    client.create_topics([NewTopic(name, 1, 1, topic_configs=settings)])
    client.close()


def read(broker: halfmoon.testing.Broker, topic: str, count: int) -> list[Message]:
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": f"{time.time_ns()}",
            "auto.offset.reset": "earliest",
        }
    )
    consumer.subscribe([topic])
    found: list[Message] = []
    while len(found) < count:
        message = consumer.poll(10)
        assert message is not None, found
        assert message.error() is None
        found.append((message.value(), dict(message.headers() or []), time.time()))
    consumer.close()
    return found


def by_confluent(address: str, topic: str, headers: dict[str, str]) -> int | None:
    """What it makes of base offset −1 is None."""
    told: list[int | None] = []
    producer = Producer({"bootstrap.servers": address})
    producer.produce(topic, b"v", headers=headers, on_delivery=lambda error, message: told.append(message.offset()))
    assert producer.flush(10) == 0
    return told[0]


def by_kafka_python(address: str, topic: str, headers: dict[str, str]) -> int:
    producer = KafkaProducer(bootstrap_servers=address)
    encoded = [(name, text.encode()) for name, text in headers.items()]
    offset: int = producer.send(topic, b"v", headers=encoded).get(10).offset
    producer.close()
    return offset


def by_aiokafka(address: str, topic: str, headers: dict[str, str]) -> int:
    async def send() -> int:
        producer = AIOKafkaProducer(bootstrap_servers=address)
        await producer.start()
        try:
            encoded = [(name, text.encode()) for name, text in headers.items()]
            offset: int = (await producer.send_and_wait(topic, b"v", headers=encoded)).offset
            return offset
        finally:
            await producer.stop()

    return asyncio.run(send())


@pytest.mark.parametrize(
    ("send", "told"),
    [(by_confluent, None), (by_kafka_python, -1), (by_aiokafka, -1)],
    ids=["confluent", "kafka-python", "aiokafka"],
)
@pytest.mark.parametrize(
    ("headers", "delay_s"), [({"DELAY": "2"}, 0.3), ({"TIMER_DELAY_MS": "250"}, 0.25)], ids=["level", "time"]
)
def test_any_client_can_delay_a_record(
    broker: halfmoon.testing.Broker,
    send: Callable[[str, str, dict[str, str]], int | None],
    told: int | None,
    headers: dict[str, str],
    delay_s: float,
) -> None:
    create(broker, "t")
    sent_s = time.time()
    offset = send(broker.bootstrap_servers, "t", {**headers, "mine": "x"})
    assert offset == told
    ((value, delivered, came_s),) = read(broker, "t", 1)
    assert came_s - sent_s >= delay_s
    assert value == b"v"
    ((name, text),) = headers.items()
    assert delivered["halfmoon.delayed"] == f"{name}={text}".encode()
    assert delivered["mine"] == b"x"
    assert name not in delivered


@pytest.mark.parametrize("send", [by_confluent, by_kafka_python, by_aiokafka])
def test_any_client_can_cancel_what_waits(
    broker: halfmoon.testing.Broker, send: Callable[[str, str, dict[str, str]], int | None]
) -> None:
    create(broker, "t")
    for key in ("a", "b", "c"):
        send(broker.bootstrap_servers, "t", {"UNIQ_KEY": key, "TIMER_DELAY_MS": "1500"})
    assert send(broker.bootstrap_servers, "t", {"TIMER_DEL_UNIQKEY": "b"}) in (-1, None)
    send(broker.bootstrap_servers, "t", {"UNIQ_KEY": "last", "TIMER_DELAY_MS": "1600"})
    assert [headers["UNIQ_KEY"] for _, headers, _ in read(broker, "t", 3)] == [b"a", b"c", b"last"]


def test_a_mixed_batch(broker: halfmoon.testing.Broker) -> None:
    create(broker, "t")
    offsets: dict[bytes, int] = {}
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "linger.ms": 200, "enable.idempotence": True})
    for number in range(6):
        late = {"TIMER_DELAY_MS": str(400 - 50 * number)} if number % 2 else {}
        producer.produce(
            "t", b"%d" % number, headers=late, on_delivery=lambda error, m: offsets.update({m.value(): m.offset()})
        )
    assert producer.flush(10) == 0
    producer.produce("t", b"next")
    assert producer.flush(10) == 0
    assert offsets == {b"%d" % number: number for number in range(6)}
    assert [value for value, _, _ in read(broker, "t", 7)] == [b"0", b"2", b"4", b"next", b"5", b"3", b"1"]


def test_what_is_refused_says_which_record_and_why(broker: halfmoon.testing.Broker) -> None:
    create(broker, "t")
    errors: list[Any] = []
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    producer.produce("t", b"v", headers={"DELAY": "tomorrow"}, on_delivery=lambda error, m: errors.append(error))
    assert producer.flush(10) == 0
    assert errors[0].name() == "INVALID_RECORD"


def test_headers_can_be_left_alone(broker: halfmoon.testing.Broker) -> None:
    create(broker, "t", halfmoon_headers_enable="false")
    assert by_confluent(broker.bootstrap_servers, "t", {"DELAY": "2"}) == 0
    assert read(broker, "t", 1)[0][1] == {"DELAY": b"2"}


def test_what_waits_survives_a_restart_and_is_hidden_from_clients(broker: halfmoon.testing.Broker) -> None:
    create(broker, "t")
    by_confluent(broker.bootstrap_servers, "t", {"TIMER_DELAY_MS": "1500"})
    by_confluent(broker.bootstrap_servers, "t", {"DELAY": "1"})
    read(broker, "t", 1)
    broker.restart()
    assert [value for value, _, _ in read(broker, "t", 2)] == [b"v", b"v"]
    listed = AdminClient({"bootstrap.servers": broker.bootstrap_servers}).list_topics(timeout=10).topics
    assert not {LEVEL_TOPIC, TIMER_TOPIC} & set(listed)


@pytest.mark.parametrize(("levels", "said"), [("1s soon", r"\$\.plugins\.delay\.levels: got 'soon'"), ("", "levels")])
def test_levels_that_are_no_times_stop_the_start(levels: str, said: str) -> None:
    with pytest.raises(StartError, match=said):
        halfmoon.testing.Broker(config={"plugins": {"delay": {"levels": levels}}}).start()
