"""Recurring messages with the three Python clients, and with ours, against a running broker."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import Consumer, KafkaException, Producer
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer
from kafka.admin import NewTopic

import halfmoon.testing
from halfmoon.cli.asking import ask_about_schedules
from halfmoon.cli.brokers import Brokers
from halfmoon.client import BrokerRefusedError, Message, recurring, schedule_change
from halfmoon.client import Producer as RocketmqProducer
from halfmoon.hooks.schedules import ListSchedules, Schedule
from halfmoon.kafka import NotStoredError, Schedules

EVERY_SECOND = "* * * * * *"
SETTINGS = {
    "listeners": {"rocketmq": {"bind": "127.0.0.1:0", "namesrv": "127.0.0.1:0"}},
    "topics": {"partitions": 1},
}


@pytest.fixture(scope="module")
def broker() -> Iterator[halfmoon.testing.Broker]:
    with halfmoon.testing.Broker(config=SETTINGS) as running:
        yield running


@pytest.fixture
def topic(broker: halfmoon.testing.Broker, request: pytest.FixtureRequest) -> str:
    """A topic with three partitions."""
    name = request.node.name
    client = KafkaAdminClient(bootstrap_servers=broker.bootstrap_servers)
    client.create_topics([NewTopic(name, 3, 1)])
    client.close()
    return str(name)


Listed = Callable[[], dict[str, Schedule]]


@pytest.fixture
def listed(broker: halfmoon.testing.Broker, topic: str) -> Listed:
    """The topic's schedules, by their names, as the command line is told of them."""

    def look() -> dict[str, Schedule]:
        answer = ask_about_schedules(Brokers(broker.bootstrap_servers), ListSchedules(topic))
        return {each.name: each for each in answer.schedules or ()}

    return look


def times(headers: list[list[tuple[str, bytes | None]]]) -> list[int]:
    """For which the messages were sent, s."""
    return [int(dict(each)["halfmoon.schedule-time"] or b"") // 1_000 for each in headers]


def follow(found: list[int]) -> bool:
    return all(later - sooner == 1 for sooner, later in pairwise(found))


def test_confluent_kafka(broker: halfmoon.testing.Broker, topic: str, listed: Listed) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    schedules = Schedules(producer)
    schedules.create(topic, "tick", EVERY_SECOND, b"v", b"k", [("mine", b"x")]).result(10)
    consumer = Consumer(
        {"bootstrap.servers": broker.bootstrap_servers, "group.id": topic, "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([topic])
    found: list[Any] = []
    while len(found) < 3:
        found += consumer.consume(1, 30)
        if len(found) == 1:  # as a program that is started again
            schedules.create(topic, "tick", EVERY_SECOND, b"v", b"k", [("mine", b"x")]).result(10)
    assert {(each.key(), each.value(), dict(each.headers())["mine"]) for each in found} == {(b"k", b"v", b"x")}
    assert follow(times([each.headers() for each in found]))
    schedules.pause(topic, "tick", b"k").result(10)
    assert listed()["tick"].state == "paused"
    schedules.resume(topic, "tick", b"k").result(10)
    assert listed()["tick"].state == "active"
    schedules.cancel(topic, "tick", b"k").result(10)
    assert listed() == {}
    with pytest.raises(NotStoredError):
        schedules.create(topic, "wrong", "61 * * * *", b"v").result(10)
    failed: list[KafkaException] = []
    producer.produce(
        topic, b"v", headers={"SCHEDULE_NAME": "n", "SCHEDULE_CRON": "x"}, on_delivery=lambda e, _: failed.append(e)
    )
    assert producer.flush(10) == 0
    assert failed[0] is not None
    consumer.close()


def test_kafka_python(broker: halfmoon.testing.Broker, topic: str, listed: Listed) -> None:
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap_servers)
    schedules = Schedules(producer)
    schedules.create(topic, "tick", EVERY_SECOND, b"v", zone="Asia/Tokyo", missed="skip", partition=1).result(10)
    consumer = KafkaConsumer(topic, bootstrap_servers=broker.bootstrap_servers, auto_offset_reset="earliest")
    found = [next(consumer) for _ in range(2)]
    assert {(each.partition, each.key, each.value) for each in found} == {(1, None, b"v")}
    assert follow(times([each.headers for each in found]))
    assert (listed()["tick"].zone, listed()["tick"].missed) == ("Asia/Tokyo", "skip")
    schedules.cancel(topic, "tick", partition=1).result(10)
    assert listed() == {}
    with pytest.raises(Exception, match=r"(?i)record"):
        producer.send(
            topic, b"v", headers=[("SCHEDULE_NAME", b"n"), ("SCHEDULE_CRON", EVERY_SECOND.encode())], partition=0
        ).get(10)
    consumer.close()
    producer.close()


def test_aiokafka(broker: halfmoon.testing.Broker, topic: str, listed: Listed) -> None:
    async def story() -> None:
        async with (
            AIOKafkaProducer(bootstrap_servers=broker.bootstrap_servers) as producer,
            AIOKafkaConsumer(
                topic, bootstrap_servers=broker.bootstrap_servers, auto_offset_reset="earliest"
            ) as consumer,
        ):
            schedules = Schedules(producer)
            await schedules.create(topic, "tick", EVERY_SECOND, b"v")
            found = [await asyncio.wait_for(consumer.getone(), 30) for _ in range(2)]
            assert {(each.key, each.value) for each in found} == {(b"tick", b"v")}, "the name is the key"
            assert follow(times([each.headers for each in found]))
            await schedules.cancel(topic, "tick")
            with pytest.raises(NotStoredError):
                await schedules.create(topic, "no/name", EVERY_SECOND, b"v")

    asyncio.run(story())
    assert listed() == {}


def test_our_client(broker: halfmoon.testing.Broker, topic: str, listed: Listed) -> None:
    with RocketmqProducer("reporting", namesrv=broker.namesrv) as producer:
        queue = producer.queues(topic)[-1]
        message = Message(topic, b"v", tags="t", properties={"mine": "x"})
        tick = recurring(message, "tick", EVERY_SECOND, missed="once")
        producer.send(tick, queue=queue)
        consumer = KafkaConsumer(topic, bootstrap_servers=broker.bootstrap_servers, auto_offset_reset="earliest")
        found = [next(consumer) for _ in range(2)]
        headers = dict(found[0].headers)
        assert (found[0].value, headers["TAGS"], headers["mine"]) == (b"v", b"t", b"x")
        assert "UNIQ_KEY" not in headers
        assert not [name for name in headers if name.startswith("SCHEDULE_")]
        producer.send(schedule_change(topic, "tick", "paused"), queue=queue)
        assert listed()["tick"].state == "paused"
        producer.send(schedule_change(topic, "tick", "cancelled"), queue=queue)
        assert listed() == {}
        with pytest.raises(BrokerRefusedError):
            producer.send(recurring(message, "tick", "nonsense"), queue=queue)
        consumer.close()


def test_a_broker_that_was_away_sends_what_was_missed_once(tmp_path: Any) -> None:
    settings = {"plugins": {"schedule": {"missed_after": "1s"}}, "topics": {"partitions": 1}}
    with halfmoon.testing.Broker(config=settings, data_dir=str(tmp_path)) as running:
        producer = KafkaProducer(bootstrap_servers=running.bootstrap_servers)
        Schedules(producer).create("orders", "tick", "*/2 * * * * *", b"v").result(30)
        producer.close()
        time.sleep(2.1)
    time.sleep(5)
    with halfmoon.testing.Broker(config=settings, data_dir=str(tmp_path)) as running:
        consumer = KafkaConsumer("orders", bootstrap_servers=running.bootstrap_servers, auto_offset_reset="earliest")
        found = times([next(consumer).headers for _ in range(3)])
        assert len(found) == len(set(found))
        assert all(each % 2 == 0 for each in found)
        consumer.close()
