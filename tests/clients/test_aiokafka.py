"""aiokafka: produce, consume, group and administration."""

from __future__ import annotations

import asyncio
import functools
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRebalanceListener, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import KafkaError, MessageSizeTooLargeError, OffsetOutOfRangeError, TopicAlreadyExistsError
from aiokafka.structs import OffsetAndTimestamp

from halfmoon.testing import Broker
from tests.clients.polling import DEADLINE_S
from tests.several_workers import nodes_at

MakeTopic = Callable[..., str]
CODECS = [None, "gzip", "snappy", "lz4", "zstd"]


def in_loop(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """Runs an async test in an event loop of its own."""

    @functools.wraps(test)
    def run(**fixtures: Any) -> None:
        asyncio.run(asyncio.wait_for(test(**fixtures), 2 * DEADLINE_S))

    return run


@asynccontextmanager
async def started(made: Any) -> AsyncIterator[Any]:
    await made.start()
    try:
        yield made
    finally:
        await (made.close() if isinstance(made, AIOKafkaAdminClient) else made.stop())


def producer(servers: str, **settings: Any) -> AbstractAsyncContextManager[AIOKafkaProducer]:
    return started(AIOKafkaProducer(bootstrap_servers=servers, **settings))


def reader(servers: str, *topics: str, **settings: Any) -> AbstractAsyncContextManager[AIOKafkaConsumer]:
    defaults = {"auto_offset_reset": "earliest", "enable_auto_commit": False}
    return started(AIOKafkaConsumer(*topics, bootstrap_servers=servers, **{**defaults, **settings}))


def admin_client(servers: str) -> AbstractAsyncContextManager[AIOKafkaAdminClient]:
    return started(AIOKafkaAdminClient(bootstrap_servers=servers))


async def take(consumer: AIOKafkaConsumer, count: int) -> list[Any]:
    async with asyncio.timeout(DEADLINE_S):
        return [await consumer.getone() for _ in range(count)]


async def fill(servers: str, topic: str, count: int, partition: int = 0) -> None:
    """Records 0…count − 1, the number as value and as timestamp in seconds from 1,000."""
    async with producer(servers) as sender:
        for number in range(count):
            await sender.send(topic, b"%d" % number, partition=partition, timestamp_ms=(1_000 + number) * 1_000)
        await sender.flush()


async def wait_for(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while not condition():
            await asyncio.sleep(0.01)


# -- produce ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("acks", [0, 1, "all"])
@in_loop
async def test_acks(bootstrap_servers: str, topic: str, acks: int | str) -> None:
    async with producer(bootstrap_servers, acks=acks) as sender:
        ends = [await sender.send(topic, b"%d" % number, partition=0) for number in range(100)]
        await sender.flush()
        if acks != 0:
            assert [(await end).offset for end in ends] == list(range(100))
    async with reader(bootstrap_servers) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        assert [record.value for record in await take(consumer, 100)] == [b"%d" % number for number in range(100)]


@pytest.mark.parametrize("codec", CODECS)
@in_loop
async def test_codecs(bootstrap_servers: str, topic: str, codec: str | None) -> None:
    body = [b"%d " % number * 200 for number in range(50)]
    async with producer(bootstrap_servers, compression_type=codec) as sender:
        ends = [await sender.send(topic, value, partition=0) for value in body]
        assert [(await end).offset for end in ends] == list(range(50))
    async with reader(bootstrap_servers, check_crcs=True) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        assert [record.value for record in await take(consumer, 50)] == body


@in_loop
async def test_keys_values_headers_and_times_come_back_as_sent(bootstrap_servers: str, topic: str) -> None:
    headers = [("a", b"1"), ("a", b"2"), ("empty", b""), ("žluť", b"\x00\xff")]
    async with producer(bootstrap_servers) as sender:
        await sender.send(topic, None, key=b"tombstone", timestamp_ms=1)
        await sender.send(topic, b"no key", timestamp_ms=2)
        await sender.send(topic, b"", key=b"", headers=headers, timestamp_ms=1_700_000_000_000)
    async with reader(bootstrap_servers) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        found = await take(consumer, 3)
    fields = ("key", "value", "headers", "timestamp", "timestamp_type")
    assert [tuple(getattr(record, field) for field in fields) for record in found] == [
        (b"tombstone", None, (), 1, 0),
        (None, b"no key", (), 2, 0),
        (b"", b"", tuple(headers), 1_700_000_000_000, 0),
    ]


@in_loop
async def test_log_append_time(bootstrap_servers: str, make_topic: MakeTopic) -> None:
    topic = make_topic(1, **{"message.timestamp.type": "LogAppendTime"})
    before_ms = int(time.time() * 1000) - 1
    async with producer(bootstrap_servers) as sender:
        end = await sender.send_and_wait(topic, b"x", timestamp_ms=1)
    assert before_ms <= end.timestamp <= time.time() * 1000 + 1
    async with reader(bootstrap_servers) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        (record,) = await take(consumer, 1)
    assert (record.timestamp, record.timestamp_type) == (end.timestamp, 1)


@in_loop
async def test_records_near_the_largest_size(bootstrap_servers: str, make_topic: MakeTopic) -> None:
    limit = 1 << 20
    topic = make_topic(1, **{"max.message.bytes": str(limit)})
    largest = bytes(limit - 100)
    async with producer(bootstrap_servers, max_request_size=4 * limit) as sender:
        assert (await sender.send_and_wait(topic, largest)).offset == 0
        with pytest.raises(MessageSizeTooLargeError):
            await sender.send_and_wait(topic, bytes(limit))
    async with reader(bootstrap_servers, max_partition_fetch_bytes=1000) as consumer:
        # The first batch of an answer comes whole, however small the reader's limit is.
        place = TopicPartition(topic, 0)
        consumer.assign([place])
        assert [record.value for record in await take(consumer, 1)] == [largest]
        assert await consumer.end_offsets([place]) == {place: 1}


@in_loop
async def test_an_idempotent_producer_keeps_the_order(bootstrap_servers: str, make_topic: MakeTopic) -> None:
    topic = make_topic(3)
    async with producer(bootstrap_servers, enable_idempotence=True, max_batch_size=200) as sender:
        ends = [await sender.send(topic, b"%d" % number, partition=number % 3) for number in range(1_500)]
        assert [(await end).offset for end in ends] == [number // 3 for number in range(1_500)]
    async with reader(bootstrap_servers) as consumer:
        for partition in range(3):
            consumer.assign([TopicPartition(topic, partition)])
            expected = [b"%d" % number for number in range(partition, 1_500, 3)]
            assert [record.value for record in await take(consumer, 500)] == expected


# -- consume ----------------------------------------------------------------------------------------------------------


@in_loop
async def test_from_an_offset_to_the_end_and_back(bootstrap_servers: str, topic: str) -> None:
    await fill(bootstrap_servers, topic, 100)
    place = TopicPartition(topic, 0)
    async with reader(bootstrap_servers) as consumer:
        consumer.assign([place])
        assert await consumer.beginning_offsets([place]) == {place: 0}
        assert await consumer.end_offsets([place]) == {place: 100}
        consumer.seek(place, 90)
        assert [record.offset for record in await take(consumer, 10)] == list(range(90, 100))
        assert await consumer.position(place) == consumer.highwater(place) == 100
        assert await consumer.getmany(timeout_ms=50) == {}
        consumer.seek(place, 5)
        assert (await take(consumer, 1))[0].value == b"5"
        await consumer.seek_to_end(place)
        assert await consumer.position(place) == 100
        await fill(bootstrap_servers, topic, 1)
        assert (await take(consumer, 1))[0].offset == 100
        await consumer.seek_to_beginning(place)
        assert (await take(consumer, 1))[0].offset == 0


@in_loop
async def test_from_a_time(bootstrap_servers: str, make_topic: MakeTopic) -> None:
    topic = make_topic(2)
    await fill(bootstrap_servers, topic, 100)
    full, empty = TopicPartition(topic, 0), TopicPartition(topic, 1)
    async with reader(bootstrap_servers) as consumer:
        found = await consumer.offsets_for_times({full: 1_041_001, empty: 0})
        assert found == {full: OffsetAndTimestamp(42, 1_042_000), empty: None}
        assert await consumer.offsets_for_times({full: 1_099_001}) == {full: None}


@in_loop
async def test_an_offset_outside_the_log(bootstrap_servers: str, topic: str) -> None:
    await fill(bootstrap_servers, topic, 10)
    place = TopicPartition(topic, 0)
    async with reader(bootstrap_servers) as consumer:
        consumer.assign([place])
        consumer.seek(place, 10_000)
        assert (await take(consumer, 1))[0].offset == 0
    async with reader(bootstrap_servers, auto_offset_reset="none") as consumer:
        consumer.assign([place])
        consumer.seek(place, 10_000)
        with pytest.raises(OffsetOutOfRangeError):
            await take(consumer, 1)


@in_loop
async def test_pause_and_resume(bootstrap_servers: str, make_topic: MakeTopic) -> None:
    topic = make_topic(2)
    places = [TopicPartition(topic, partition) for partition in range(2)]
    for partition in range(2):
        await fill(bootstrap_servers, topic, 10, partition)
    async with reader(bootstrap_servers) as consumer:
        consumer.assign(places)
        consumer.pause(places[1])
        assert {record.partition for record in await take(consumer, 10)} == {0}
        consumer.resume(places[1])
        assert {record.partition for record in await take(consumer, 10)} == {1}


# -- groups -----------------------------------------------------------------------------------------------------------


class Member(ConsumerRebalanceListener):
    """A group member with a task of its own."""

    def __init__(self, servers: str, group: str, topic: str, **settings: Any) -> None:
        self.seen: list[tuple[int, int]] = []
        """(partition, offset) of every record, in the order it came."""
        self.owned: set[int] = set()
        self.rebalances = 0
        self._arguments = (servers, topic, {"group_id": group, "heartbeat_interval_ms": 100, **settings})
        self._leaving = asyncio.Event()
        self._task = asyncio.create_task(self._run())

    async def on_partitions_assigned(self, assigned: Any) -> None:
        self.rebalances += 1
        self.owned = {place.partition for place in assigned}

    async def on_partitions_revoked(self, revoked: Any) -> None:
        self.owned = set()

    async def _run(self) -> None:
        servers, topic, settings = self._arguments
        async with reader(servers, session_timeout_ms=6_000, retry_backoff_ms=20, **settings) as consumer:
            consumer.subscribe([topic], listener=self)
            while not self._leaving.is_set():
                for place, records in (await consumer.getmany(timeout_ms=50)).items():
                    self.seen += [(place.partition, record.offset) for record in records]
                    # A rebalance or a restart may come in between: then the records come again, as they must.
                    with suppress(KafkaError):
                        await consumer.commit()

    async def leave(self) -> None:
        self._leaving.set()
        await asyncio.wait_for(self._task, DEADLINE_S)


async def committed(servers: str, group: str, topic: str, partitions: int) -> dict[int, int | None]:
    async with reader(servers, group_id=group) as consumer:
        return {number: await consumer.committed(TopicPartition(topic, number)) for number in range(partitions)}


@in_loop
async def test_two_members_share_and_the_next_one_goes_on(
    bootstrap_servers: str, make_topic: MakeTopic, name: str
) -> None:
    topic = make_topic(4)
    first = Member(bootstrap_servers, name, topic)
    await wait_for(lambda: first.owned == {0, 1, 2, 3})
    second = Member(bootstrap_servers, name, topic)
    await wait_for(lambda: len(first.owned) == len(second.owned) == 2 and not first.owned & second.owned)
    for partition in range(4):
        await fill(bootstrap_servers, topic, 10, partition)
    everything = {(partition, offset) for partition in range(4) for offset in range(10)}
    await wait_for(lambda: set(first.seen) | set(second.seen) == everything)
    assert {partition for partition, _ in first.seen} == first.owned
    await first.leave()
    await wait_for(lambda: second.owned == {0, 1, 2, 3})
    await second.leave()
    assert await committed(bootstrap_servers, name, topic, 4) == dict.fromkeys(range(4), 10)
    await fill(bootstrap_servers, topic, 1, partition=2)
    third = Member(bootstrap_servers, name, topic)
    await wait_for(lambda: third.seen)
    assert third.seen == [(2, 10)]
    await third.leave()


@in_loop
async def test_a_static_member_comes_back_without_a_rebalance(
    bootstrap_servers: str, make_topic: MakeTopic, name: str
) -> None:
    topic = make_topic(2)
    first = Member(bootstrap_servers, name, topic, group_instance_id="one")
    await wait_for(lambda: first.owned)
    second = Member(bootstrap_servers, name, topic, group_instance_id="two")
    await wait_for(lambda: len(first.owned) == len(second.owned) == 1)
    owned, rebalances = second.owned, first.rebalances
    await second.leave()
    again = Member(bootstrap_servers, name, topic, group_instance_id="two")
    await wait_for(lambda: again.owned)
    assert again.owned == owned
    assert first.rebalances == rebalances
    await again.leave()
    await first.leave()


@in_loop
async def test_members_go_on_after_a_restart(name: str, own_broker: Broker) -> None:
    servers = own_broker.bootstrap_servers
    async with admin_client(servers) as client:
        await client.create_topics([NewTopic(name, 2, 1)])
    both = [Member(servers, name, name) for _ in range(2)]
    await wait_for(lambda: all(len(member.owned) == 1 for member in both))
    for partition in range(2):
        await fill(servers, name, 10, partition)
    await wait_for(lambda: sum(len(member.seen) for member in both) >= 20)
    await asyncio.to_thread(own_broker.restart)
    for partition in range(2):
        await fill(servers, name, 10, partition)
    everything = {(partition, offset) for partition in range(2) for offset in range(20)}
    await wait_for(lambda: set(both[0].seen) | set(both[1].seen) == everything)
    async with asyncio.timeout(DEADLINE_S):
        while await committed(servers, name, name, 2) != {0: 20, 1: 20}:
            await asyncio.sleep(0.01)
    for member in both:
        await member.leave()


# -- administration ---------------------------------------------------------------------------------------------------


async def topic_config(client: AIOKafkaAdminClient, topic: str, key: str) -> str:
    (answer,) = await client.describe_configs([ConfigResource(ConfigResourceType.TOPIC, topic, {key: None})])
    ((error_code, _, _, _, entries),) = answer.resources
    assert error_code == 0
    ((found, value, *_),) = entries
    assert found == key
    return str(value)


@in_loop
async def test_topics_partitions_and_configs(bootstrap_servers: str, name: str) -> None:
    async with admin_client(bootstrap_servers) as client:
        await client.create_topics([NewTopic(name, 2, 1, topic_configs={"retention.ms": "3600000"})])
        answer = await client.create_topics([NewTopic(name, 1, 1)])
        assert [error[:2] for error in answer.topic_errors] == [(name, TopicAlreadyExistsError.errno)]
        await client.create_partitions({name: NewPartitions(5)})
        (described,) = await client.describe_topics([name])
        assert sorted(partition["partition"] for partition in described["partitions"]) == list(range(5))
        assert await topic_config(client, name, "retention.ms") == "3600000"
        # AlterConfigs, not its incremental sister: what is not named goes back to its default.
        await client.alter_configs([ConfigResource(ConfigResourceType.TOPIC, name, {"max.message.bytes": "12345"})])
        assert await topic_config(client, name, "max.message.bytes") == "12345"
        assert await topic_config(client, name, "retention.ms") == "604800000"
        await client.delete_topics([name])
        assert name not in await client.list_topics()


@in_loop
async def test_delete_records(bootstrap_servers: str, topic: str) -> None:
    await fill(bootstrap_servers, topic, 100)
    place = TopicPartition(topic, 0)
    async with admin_client(bootstrap_servers) as client:
        assert await client.delete_records({place: RecordsToDelete(before_offset=60)}) == {place: 60}
    async with reader(bootstrap_servers) as consumer:
        consumer.assign([place])
        assert (await take(consumer, 1))[0].value == b"60"


@in_loop
async def test_groups_and_their_offsets(bootstrap_servers: str, make_topic: MakeTopic, name: str) -> None:
    topic = make_topic(2)
    await fill(bootstrap_servers, topic, 10)
    member = Member(bootstrap_servers, name, topic, client_id="reader")
    await wait_for(lambda: len(member.seen) == 10)
    async with admin_client(bootstrap_servers) as client:
        assert (name, "consumer") in await client.list_consumer_groups()
        (answer,) = await client.describe_consumer_groups([name])
        ((error_code, group, state, _, _, described, *_),) = answer.groups
        assert (error_code, group, state) == (0, name, "Stable")
        assert [who[1] for who in described] == ["reader"]
        await member.leave()
        found = await client.list_consumer_group_offsets(name)
        assert found[TopicPartition(topic, 0)].offset == 10


@in_loop
async def test_the_cluster(bootstrap_servers: str) -> None:
    async with admin_client(bootstrap_servers) as client:
        cluster = await client.describe_cluster()
        assert sorted(f"{node['host']}:{node['port']}" for node in cluster["brokers"]) == nodes_at(bootstrap_servers)
