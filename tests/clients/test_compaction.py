"""Other people's clients over what a compaction has left: holes between records, at the ends of batches, whole batches
gone. They get every last record once, in order, and to the end."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Callable, Iterator

import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka import TopicPartition as AioPartition
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from kafka import KafkaConsumer
from kafka import TopicPartition as PythonPartition

from halfmoon.testing import Broker

TOPIC = "compacted"
Found = list[tuple[int, bytes | None, bytes | None]]


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    config = {"log": {"segment_bytes": "1MiB", "cleaner": {"interval": "100ms"}}}
    with Broker(config=config) as running:
        yield running


@pytest.fixture(scope="module")
def left(broker: Broker) -> Found:
    """Fill the topic, let it be compacted, and say what is to be found then."""
    servers = broker.bootstrap_servers
    admin = AdminClient({"bootstrap.servers": servers})
    configs = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0", "max.compaction.lag.ms": "1"}
    admin.create_topics([NewTopic(TOPIC, 1, 1, config=configs)])[TOPIC].result(10)
    producer = Producer({"bootstrap.servers": servers, "linger.ms": 50, "compression.type": "lz4"})
    written: Found = []

    def put(*pairs: tuple[bytes, bytes | None]) -> None:
        """One batch."""
        for key, value in pairs:
            producer.produce(TOPIC, value, key)
            written.append((len(written), key, value))
        assert producer.flush(10) == 0

    put(*((b"%d" % at, b"old") for at in range(10)))  # a whole batch goes
    put(*((b"%d" % at, b"old") for at in range(5, 15)))  # and its neighbour
    put((b"first", b"stays"), *((b"%d" % at, b"old") for at in range(10)))  # all but the first
    put(*((b"%d" % at, b"old") for at in range(10)), (b"last", b"stays"))  # all but the last
    put(*((b"%d" % at, b"x" * 100) for at in range(15)), (b"first", None))
    for _ in range(5):
        put((b"again", b"old"), (b"and again", b"old"))
    put((b"again", b"new"), (b"and again", b"new"))
    put((b"end", b""))
    last = {key: each for each in written for key in (each[1],)}
    expected = sorted(last.values())
    deadline = time.monotonic() + 30
    while len(with_confluent(servers)) > len(expected):
        assert time.monotonic() < deadline
        time.sleep(0.2)
    return expected


def with_confluent(servers: str, begin: int = 0) -> Found:
    consumer = Consumer({"bootstrap.servers": servers, "group.id": uuid.uuid4().hex, "enable.partition.eof": True})
    consumer.assign([TopicPartition(TOPIC, 0, begin)])
    found: Found = []
    while (message := consumer.poll(20)) is not None:
        if message.error() is not None:
            assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
            break
        found.append((message.offset() or 0, message.key(), message.value()))  # type: ignore[arg-type]
    assert consumer.position([TopicPartition(TOPIC, 0)])[0].offset >= (found[-1][0] + 1 if found else 0)
    consumer.close()
    return found


def with_kafka_python(servers: str, begin: int = 0) -> Found:
    consumer = KafkaConsumer(bootstrap_servers=servers, group_id=None)
    place = PythonPartition(TOPIC, 0)
    consumer.assign([place])
    consumer.seek(place, begin)
    end = consumer.end_offsets([place])[place]
    found: Found = []
    deadline = time.monotonic() + 20
    while consumer.position(place) < end:
        assert time.monotonic() < deadline, (consumer.position(place), end)
        for records in consumer.poll(timeout_ms=5_000).values():
            found += [(record.offset, record.key, record.value) for record in records]
    assert consumer.position(place) == consumer.end_offsets([place])[place]
    consumer.close()
    return found


def with_aiokafka(servers: str, begin: int = 0) -> Found:
    async def run() -> Found:
        consumer = AIOKafkaConsumer(bootstrap_servers=servers, group_id=None)
        await consumer.start()
        place = AioPartition(TOPIC, 0)
        consumer.assign([place])
        consumer.seek(place, begin)
        found: Found = []
        end = (await consumer.end_offsets([place]))[place]
        while await consumer.position(place) < end:
            for records in (await consumer.getmany(timeout_ms=5_000)).values():
                found += [(record.offset, record.key, record.value) for record in records]
        await consumer.stop()
        return found

    return asyncio.run(run())


CLIENTS = [with_confluent, with_kafka_python, with_aiokafka]


@pytest.mark.parametrize("read", CLIENTS)
def test_every_last_record_is_read_in_order(broker: Broker, left: Found, read: Callable[..., Found]) -> None:
    assert read(broker.bootstrap_servers) == left


@pytest.mark.parametrize("read", CLIENTS)
def test_reading_begins_anywhere(broker: Broker, left: Found, read: Callable[..., Found]) -> None:
    """In a hole, at the end of a batch whose last records are gone, at a record."""
    for begin in (3, 12, 21, 25, 42, 50, 60):
        assert read(broker.bootstrap_servers, begin) == [each for each in left if each[0] >= begin], begin


def test_what_a_compacted_topic_refuses(broker: Broker, left: Found) -> None:
    servers = broker.bootstrap_servers
    producer = Producer({"bootstrap.servers": servers})
    errors: list[KafkaError | None] = []
    producer.produce(TOPIC, b"no key", on_delivery=lambda error, message: errors.append(error))
    producer.flush(10)
    assert [error.code() for error in errors if error is not None] == [KafkaError.INVALID_RECORD]
    admin = AdminClient({"bootstrap.servers": servers})
    place = TopicPartition(TOPIC, 0, 5)
    with pytest.raises(KafkaException) as refusal:
        admin.delete_records([place])[place].result(10)
    assert refusal.value.args[0].code() == KafkaError.POLICY_VIOLATION
    assert with_confluent(servers) == left
