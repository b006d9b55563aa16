"""SQL92 over fields of JSON values: a view that Kafka's clients read, consumers and share consumers, over restarts."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator

import pytest
from aiokafka import AIOKafkaConsumer
from confluent_kafka import Consumer, KafkaException, Producer, ShareConsumer
from confluent_kafka.admin import AdminClient, NewTopic

from halfmoon.testing import Broker
from tests.clients.polling import DEADLINE_S, until

SQL = "value.total > 10 AND value.items[0].sku = 'a' AND region <> 'SH'"
LARGE = "x" * 2_000
"""A hundred of these are more than the loop looks at."""


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    share = {"auto_offset_reset": "earliest"}
    with Broker(config={"log": {"segment_bytes": "1MiB"}, "groups": {"share": share}}) as started:
        yield started


def order(number: int) -> bytes:
    if number % 10 == 9:
        return b'{"total": 99, "items": [{"sku": "a"}]'  # cut off
    return json.dumps({"n": number, "total": number + 0.5, "items": [{"sku": "ab"[number % 2]}], "pad": LARGE}).encode()


def wanted(numbers: range) -> list[int]:
    return [n for n in numbers if n % 10 != 9 and n >= 10 and n % 2 == 0 and n % 3 != 0]


def send(broker: Broker, topic: str, numbers: range, partitions: int) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "linger.ms": 200, "compression.type": "zstd"})
    for n in numbers:
        headers = [("region", b"SH" if n % 3 == 0 else b"HZ")]
        producer.produce(topic, order(n), headers=headers, partition=n // 10 % partitions)
    assert producer.flush(DEADLINE_S) == 0


def make_view(broker: Broker, name: str, sql: str, partitions: int = 2) -> str:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    admin.create_topics([NewTopic(name, partitions, 1)])[name].result(DEADLINE_S)
    view = f"{name}-view"
    configs = {"halfmoon.view.source": name, "halfmoon.view.sql": sql}
    admin.create_topics([NewTopic(view, partitions, 1, config=configs)])[view].result(DEADLINE_S)
    return view


def read(consumer: Consumer | ShareConsumer, count: int) -> list[int]:
    found: list[int] = []

    def step() -> bool:
        taken = consumer.poll(0.5)
        for message in [taken] if isinstance(consumer, Consumer) else list(taken or ()):
            if message is not None and message.error() is None:
                found.append(json.loads(message.value())["n"])
        return len(found) >= count

    until(step, deadline_s=3 * DEADLINE_S)
    return sorted(found)


def reader(broker: Broker, view: str) -> Consumer:
    consumer = Consumer(
        {"bootstrap.servers": broker.bootstrap_servers, "group.id": view, "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([view])
    return consumer


def test_a_view_by_confluent_and_aiokafka(broker: Broker, name: str) -> None:
    view = make_view(broker, name, SQL)
    send(broker, name, range(200), 2)
    consumer = reader(broker, view)
    assert read(consumer, len(wanted(range(200)))) == wanted(range(200))
    consumer.close()
    assert asyncio.run(by_aiokafka(broker, view)) == wanted(range(200))


async def by_aiokafka(broker: Broker, view: str) -> list[int]:
    consumer = AIOKafkaConsumer(view, bootstrap_servers=broker.bootstrap_servers, auto_offset_reset="earliest")
    await consumer.start()
    try:
        async with asyncio.timeout(3 * DEADLINE_S):
            return sorted([json.loads((await consumer.getone()).value)["n"] for _ in wanted(range(200))])
    finally:
        await consumer.stop()


def test_a_view_by_a_share_group(broker: Broker, name: str) -> None:
    view = make_view(broker, name, SQL)
    send(broker, name, range(100), 2)
    consumer = ShareConsumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": f"{name}-share"})
    consumer.subscribe([view])
    assert read(consumer, len(wanted(range(100)))) == wanted(range(100))
    consumer.close()


def test_a_wrong_field_is_refused_with_its_place(broker: Broker, name: str) -> None:
    with pytest.raises(KafkaException, match=r"expected a field of the JSON value.*line 1, column 6"):
        make_view(broker, name, "value.[0] = 1")


@pytest.mark.timeout(240)
def test_a_view_has_each_match_once_over_restarts(name: str) -> None:
    with Broker(config={"log": {"segment_bytes": "1MiB"}}) as own:
        view = make_view(own, name, SQL)
        for turn in range(3):
            send(own, name, range(100 * turn, 100 * turn + 100), 2)
            own.restart()
        consumer = reader(own, view)
        assert read(consumer, len(wanted(range(300)))) == wanted(range(300))
        assert consumer.poll(1.0) is None
        consumer.close()
