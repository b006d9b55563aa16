"""The consumer's loop with each client against a running broker: retries, dead letters, SIGTERM, rebalances."""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import Consumer, Producer, TopicPartition
from kafka import KafkaConsumer, KafkaProducer

import halfmoon.testing
from halfmoon.kafka import AsyncConsumerLoop, ConsumerLoop, DeadLetter, Nack, attempts

SETTINGS = {
    "plugins": {"delay": {"levels": "10ms 10ms 10ms 10ms 10ms"}, "retry": {"max_reconsume_times": 2}},
    "topics": {"partitions": 2},
}
CLIENTS = ["confluent-kafka", "kafka-python", "aiokafka"]
_numbers = itertools.count()


@pytest.fixture(scope="module")
def broker() -> Iterator[halfmoon.testing.Broker]:
    with halfmoon.testing.Broker(config=SETTINGS) as running:
        yield running


def value_of(record: Any) -> bytes:
    found: bytes = record.value() if callable(record.value) else record.value
    return found


class World:
    """A topic and a group of its own, and one client's loop over them."""

    def __init__(self, broker: halfmoon.testing.Broker, kind: str) -> None:
        self.kind = kind
        self.servers = broker.bootstrap_servers
        number = next(_numbers)
        self.topic, self.group = f"orders-{number}", f"billing-{number}"
        self.names = Nack(self.group, None)
        self.loop: Any = None

    def produce(self, *values: bytes, **where: Any) -> None:
        producer = Producer({"bootstrap.servers": self.servers})
        for value in values:
            producer.produce(self.topic, value, **where)
        assert producer.flush(20) == 0

    def run(self, handle: Callable[[Any], object], **options: Any) -> Any:
        """Until the handler stops it; the loop."""
        if self.kind == "aiokafka":
            return asyncio.run(self._run_awaited(handle, **options))
        if self.kind == "confluent-kafka":
            producer: Any = Producer({"bootstrap.servers": self.servers})
            settings = {"group.id": self.group, "auto.offset.reset": "earliest", "enable.auto.commit": False}
            consumer: Any = Consumer({"bootstrap.servers": self.servers, **settings})
        else:
            producer = KafkaProducer(bootstrap_servers=self.servers)
            consumer = KafkaConsumer(
                group_id=self.group, auto_offset_reset="earliest", enable_auto_commit=False,
                bootstrap_servers=self.servers,
            )  # fmt: skip
        self.loop = ConsumerLoop(consumer, [self.topic], handle, nack=Nack(self.group, producer), **options)
        self.loop.run()
        if self.kind == "kafka-python":
            producer.close()
        return self.loop

    async def _run_awaited(self, handle: Callable[[Any], object], **options: Any) -> Any:
        async with AIOKafkaProducer(bootstrap_servers=self.servers) as producer:
            nack = Nack(self.group, producer)
            self.loop = AsyncConsumerLoop(self.awaited_consumer(), [self.topic], handle, nack=nack, **options)
            await self.loop.run()
        return self.loop

    def awaited_consumer(self) -> AIOKafkaConsumer:
        return AIOKafkaConsumer(
            group_id=self.group, auto_offset_reset="earliest", enable_auto_commit=False, metadata_max_age_ms=500,
            bootstrap_servers=self.servers,
        )  # fmt: skip

    def committed(self, topic: str) -> int:
        consumer = Consumer({"bootstrap.servers": self.servers, "group.id": self.group})
        found = consumer.committed([TopicPartition(topic, partition) for partition in range(2)], timeout=20)
        consumer.close()
        return sum(max(0, each.offset) for each in found)

    def dead_letters(self, count: int) -> list[bytes]:
        consumer = Consumer({"bootstrap.servers": self.servers, "group.id": "look", "auto.offset.reset": "earliest"})
        consumer.assign([TopicPartition(self.names.dead_letters, 0, 0)])
        found = [value_of(message) for message in consumer.consume(count, timeout=20)]
        consumer.close()
        return sorted(found)


@pytest.fixture(params=CLIENTS)
def world(request: pytest.FixtureRequest, broker: halfmoon.testing.Broker) -> World:
    return World(broker, request.param)


def test_retries_dead_letters_and_commits(world: World) -> None:
    world.produce(b"good", b"bad", b"worse", b"later")
    done: list[bytes] = []
    last = threading.Event()

    def handle(record: Any) -> None:
        value, before = value_of(record), attempts(record)
        if value == b"worse":
            raise DeadLetter
        if value == b"bad" and before == 2:
            last.set()
        if value == b"bad" or (value == b"later" and before < 1):
            raise RuntimeError("not now")
        done.append(value)

    def stop_when_done() -> None:
        if last.is_set() and len(done) == 2:
            world.loop.stop()

    loop = world.run(handle, on_poll=stop_when_done)
    assert sorted(done) == [b"good", b"later"]
    assert (loop.handled, loop.nacked, loop.dead_lettered) == (2, 4, 1)
    assert world.dead_letters(2) == [b"bad", b"worse"]
    assert world.committed(world.topic) == 4
    assert world.committed(world.names.topic) == 3


def test_sigterm_stops_it_after_the_record_at_hand(world: World) -> None:
    world.produce(*[b"%d" % number for number in range(50)])
    handled: list[bytes] = []

    def handle(record: Any) -> None:
        handled.append(value_of(record))
        if len(handled) in (7, 20):
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(0)  # a bytecode, in which the signal is noticed

    first = world.run(handle)
    assert world.committed(world.topic) == first.handled
    assert 7 <= first.handled <= 9  # asyncio learns of a signal two turns later
    world.run(handle)
    assert world.committed(world.topic) == len(handled)
    assert len(set(handled)) == len(handled), "what was committed is not handled again"


def test_members_come_and_go(broker: halfmoon.testing.Broker) -> None:
    """aiokafka rebalances while records are handled: none is handled twice where all members live."""

    async def run() -> Counter[bytes]:
        world = World(broker, "aiokafka")
        world.produce(*[b"%d" % number for number in range(200)])
        seen: Counter[bytes] = Counter()
        loops: list[AsyncConsumerLoop] = []

        async def handle(record: Any) -> None:
            await asyncio.sleep(0.005)
            seen[record.value] += 1
            if len(seen) == 200:
                for loop in loops:
                    loop.stop()

        async def member(delay_s: float) -> None:
            await asyncio.sleep(delay_s)
            loop = AsyncConsumerLoop(world.awaited_consumer(), [world.topic], handle, signals=[])
            loops.append(loop)
            await loop.run()

        await asyncio.wait_for(asyncio.gather(member(0), member(0.4)), 50)
        return seen

    seen = asyncio.run(run())
    assert len(seen) == 200
    assert {value: count for value, count in seen.items() if count > 1} == {}


def test_a_task_that_is_cancelled_commits(broker: halfmoon.testing.Broker) -> None:
    async def run() -> World:
        world = World(broker, "aiokafka")
        world.produce(b"a", b"b", b"c", partition=0)
        started = asyncio.Event()

        async def handle(record: Any) -> None:
            if record.value == b"c":
                started.set()
                await asyncio.sleep(60)

        loop = AsyncConsumerLoop(world.awaited_consumer(), [world.topic], handle)
        task = asyncio.get_running_loop().create_task(loop.run())
        await asyncio.wait_for(started.wait(), 20)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return world

    world = asyncio.run(run())
    assert world.committed(world.topic) == 2


def test_consumers_that_do_not_fit() -> None:
    async def run() -> None:
        automatic = AIOKafkaConsumer(bootstrap_servers="127.0.0.1:1", group_id="g")
        with pytest.raises(ValueError, match="enable_auto_commit=False"):
            AsyncConsumerLoop(automatic, ["orders"], print)
        with pytest.raises(TypeError, match="not one name"):
            AsyncConsumerLoop(automatic, "orders", print)
        with pytest.raises(TypeError, match="use ConsumerLoop"):
            AsyncConsumerLoop(Consumer({"group.id": "g"}), ["orders"], print)
        await automatic.stop()

    asyncio.run(run())
