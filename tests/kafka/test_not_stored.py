"""What the broker refuses of the helpers' records is raised, by `result`, `flush` and `close`, with each client."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.aio import AIOProducer
from kafka import KafkaProducer
from kafka.future import Future

import halfmoon.testing
from halfmoon.kafka import Nack, NotStoredError, Sent, TransactionalOutbox

DAYS_60_MS = 60 * 86_400_000
"""More than the broker's `max_delay` of 40 days."""
RECORD: Any = SimpleNamespace(topic="orders", partition=0, offset=7, key=b"k", value=b"v", headers=())
BEFORE: Any = SimpleNamespace(topic="orders", partition=0, offset=6, key=b"k", value=b"v", headers=())
"""Another one: what is handed back twice counts once, and a shard cannot know that there is none at that offset."""
LONG = "n" * 2_000
"""The broker takes names of up to 1,000 bytes."""
BLOCKING = ["confluent-kafka", "kafka-python"]


@pytest.fixture(scope="module")
def broker() -> Iterator[halfmoon.testing.Broker]:
    with halfmoon.testing.Broker() as running:
        yield running


@pytest.fixture(params=BLOCKING)
def producer(request: pytest.FixtureRequest, broker: halfmoon.testing.Broker) -> Iterator[Any]:
    if request.param == "confluent-kafka":
        yield Producer({"bootstrap.servers": broker.bootstrap_servers})
    else:
        # With idempotence, its default, it refuses everything itself once a record was refused.
        made = KafkaProducer(bootstrap_servers=broker.bootstrap_servers, enable_idempotence=False)
        yield made
        made.close()


def group(request: pytest.FixtureRequest) -> str:
    return request.node.name.replace("[", ".").replace("]", "")


def test_a_refused_nack_raises(producer: Any, request: pytest.FixtureRequest, caplog: pytest.LogCaptureFixture) -> None:
    nack = Nack(group(request), producer)
    assert nack(RECORD).result(10) is not None
    with caplog.at_level(logging.ERROR, "halfmoon.kafka"):
        sent = nack(RECORD, delay_ms=DAYS_60_MS)
        assert isinstance(sent, Sent)
        with pytest.raises(NotStoredError, match="the negative acknowledgement of orders/0/7 is not stored") as raised:
            sent.result(10)
    assert raised.value.__cause__ is not None
    assert sent.done()
    assert isinstance(sent.exception(), NotStoredError)
    assert not sent.cancel()
    assert [record.getMessage() for record in caplog.records] == [f"event=not_stored error={raised.value}"]


def test_flush_and_close_raise_once(producer: Any, request: pytest.FixtureRequest) -> None:
    nack = Nack(group(request), producer)
    nack(RECORD)
    nack.flush(10)
    nack(RECORD, delay_ms=DAYS_60_MS)
    with pytest.raises(NotStoredError, match="orders/0/7"):
        nack.flush(10)
    nack.flush(10)
    nack(RECORD)
    nack.flush(10)
    for _ in range(3):
        nack(RECORD, delay_ms=DAYS_60_MS)
    with pytest.raises(NotStoredError, match="3 records are not stored, the first: the negative"):
        nack.close(10)
    nack.close(10)
    with pytest.raises(ValueError, match="Nack is closed"):
        nack(RECORD)


def test_a_refused_half_message_raises(producer: Any, request: pytest.FixtureRequest) -> None:
    outbox = TransactionalOutbox(group(request), producer)
    name, sent = outbox.prepare("orders", b"paid", transaction=LONG)
    assert name == LONG
    with pytest.raises(NotStoredError, match="the half message of transaction nnn"):
        sent.result(10)
    outbox.prepare("orders", b"paid")[1].result(10)
    outbox.commit(LONG)
    with pytest.raises(NotStoredError):
        outbox.close(10)


def test_flush_waits_for_other_threads_records(producer: Any, request: pytest.FixtureRequest) -> None:
    nack = Nack(group(request), producer)
    started = threading.Barrier(4)

    def send() -> None:
        started.wait(10)
        for _ in range(50):
            nack(RECORD, delay_ms=DAYS_60_MS)

    threads = [threading.Thread(target=send) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    with pytest.raises(NotStoredError, match="200 records"):
        nack.flush(30)


def test_aiokafka(broker: halfmoon.testing.Broker) -> None:
    async def run() -> None:
        producer = AIOKafkaProducer(bootstrap_servers=broker.bootstrap_servers)
        nack, outbox = Nack("aio", producer), TransactionalOutbox("aio", producer)
        async with producer:
            await nack(BEFORE)
            with pytest.raises(NotStoredError, match="the negative acknowledgement of orders/0/7"):
                await nack(RECORD, delay_ms=DAYS_60_MS)
            nack(RECORD, delay_ms=DAYS_60_MS)  # nobody awaits it
            with pytest.raises(NotStoredError, match="2 records"):
                await nack.flush(10)
            await nack.flush(10)
            nack(RECORD, delay_ms=DAYS_60_MS)
            with pytest.raises(NotStoredError):
                await nack.close(10)
            with pytest.raises(ValueError, match="closed"):
                nack(RECORD)
            _, sent = outbox.prepare("orders", b"paid", transaction=LONG)
            with pytest.raises(NotStoredError, match="the half message"):
                await asyncio.wait_for(sent, 10)
            with pytest.raises(NotStoredError):
                await outbox.close(10)

    asyncio.run(run())


def test_aiokafka_cancelled_or_late() -> None:
    class Never:
        async def send(self, *_: object, **__: object) -> Any:
            return asyncio.get_running_loop().create_future()

        async def partitions_for(self, topic: str) -> None:
            raise OSError("away")

    async def run() -> None:
        nack = Nack("aio", Never())
        sent = nack(RECORD)
        with pytest.raises(TimeoutError, match="to 1 record"):
            await nack.flush(0.01)
        sent.cancel()
        with pytest.raises(NotStoredError, match="cancelled"):
            await nack.flush(10)

    asyncio.run(run())


def test_no_answer_in_time() -> None:
    """librdkafka and kafka-python send on; the record may be stored later."""

    class Slow:
        future = Future()

        def send(self, *_: object, **__: object) -> Future:
            return self.future

        def partitions_for(self, topic: str) -> None: ...

    nack = Nack("slow", Slow())
    sent = nack(RECORD)
    with pytest.raises(TimeoutError):
        sent.result(0.01)
    with pytest.raises(TimeoutError, match=r"no answer after 0.01 s to the negative acknowledgement of orders/0/7"):
        nack.flush(0.01)
    Slow.future.success("stored")
    assert sent.get(0) == "stored"
    nack.flush(0)


def test_a_confluent_record_that_no_broker_answers() -> None:
    producer = Producer({"bootstrap.servers": "127.0.0.1:1", "delivery.timeout.ms": 700, "log_level": 0})
    outbox = TransactionalOutbox("shop", producer)
    _, sent = outbox.prepare("orders", b"paid")
    with pytest.raises(TimeoutError):
        sent.result(0.05)
    with pytest.raises(NotStoredError, match="_MSG_TIMED_OUT"):
        sent.result(30)


def test_what_could_not_even_be_sent_is_no_refusal(broker: halfmoon.testing.Broker) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "message.max.bytes": 1_000})
    outbox = TransactionalOutbox("shop", producer)
    with pytest.raises(KafkaException):
        outbox.prepare("orders", b"x" * 5_000)
    outbox.close(0)


def test_producers_that_cannot_be_used() -> None:
    async def run() -> None:
        producer = AIOProducer({"bootstrap.servers": "127.0.0.1:1", "log_level": 0})
        with pytest.raises(TypeError, match="AIOProducer sends no headers"):
            Nack("billing", producer)
        await producer.close()

    asyncio.run(run())
    names = Nack("billing", None)
    assert names.topic == "retry.billing"
    with pytest.raises(TypeError, match="without a producer"):
        names(RECORD)
    names.close()


class TestTheRetryTopic:
    def test_is_there_when_the_helper_is_made(self, producer: Any, request: pytest.FixtureRequest) -> None:
        nack = Nack(group(request), producer)
        look = Producer({"bootstrap.servers": request.getfixturevalue("broker").bootstrap_servers})
        assert nack.topic in look.list_topics(timeout=10).topics

    def test_is_there_when_aiokafka_has_started(self, broker: halfmoon.testing.Broker) -> None:
        async def run() -> None:
            producer = AIOKafkaProducer(bootstrap_servers=broker.bootstrap_servers)
            nack = Nack("aio topic", producer)
            async with producer:
                assert await asyncio.wait_for(producer.partitions_for(nack.topic), 10)
            look = Producer({"bootstrap.servers": broker.bootstrap_servers})
            assert nack.topic in look.list_topics(timeout=10).topics

        asyncio.run(run())

    def test_librdkafkas_defaults_get_the_first_redelivery(self) -> None:
        """Its consumers create no topics, and look for missing ones every five minutes."""
        settings = {"plugins": {"delay": {"levels": "1ms 1ms 1ms"}}, "topics": {"auto_create": False}}
        with halfmoon.testing.Broker(config=settings) as broker:
            servers = {"bootstrap.servers": broker.bootstrap_servers}
            consumer = Consumer({**servers, "group.id": "billing", "auto.offset.reset": "earliest"})
            consumer.subscribe(["retry.billing"])
            for _ in range(200):
                if consumer.assignment():
                    break
                assert consumer.poll(0.1) is None
            assert consumer.assignment() == [TopicPartition("retry.billing", 0)]
            Nack("billing", Producer(servers))(RECORD).result(10)
            message = consumer.poll(30)
            consumer.close()
            assert message is not None
            assert message.error() is None
            assert message.value() == b"v"
