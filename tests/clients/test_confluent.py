"""confluent-kafka (librdkafka): produce, consume, group and administration."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any

import pytest
from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_END,
    TIMESTAMP_CREATE_TIME,
    TIMESTAMP_LOG_APPEND_TIME,
    Consumer,
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from halfmoon.testing import Broker
from tests.clients.group_life import (
    a_static_member_comes_back,
    both_go_on_after_a_restart,
    two_share_and_the_next_one_goes_on,
)
from tests.clients.polling import DEADLINE_S, until, wait_for
from tests.several_workers import nodes_at

pytestmark = pytest.mark.workers

MakeTopic = Callable[..., str]
CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]


class Sent:
    """A producer that remembers how each record ended."""

    def __init__(self, servers: str, **settings: Any) -> None:
        config = {"bootstrap.servers": servers, "linger.ms": 2, **{k.replace("_", "."): v for k, v in settings.items()}}
        self.producer = Producer(config)
        self.messages: list[Message] = []
        self.errors: list[KafkaError] = []

    def send(self, topic: str, value: bytes | None, **fields: Any) -> None:
        self.producer.produce(topic, value, on_delivery=self._ended, **fields)

    def _ended(self, error: KafkaError | None, message: Message) -> None:
        if error is None:
            self.messages.append(message)
        else:
            self.errors.append(error)

    def done(self) -> Sent:
        assert self.producer.flush(DEADLINE_S) == 0
        return self


def fill(servers: str, topic: str, count: int, partition: int = 0) -> None:
    """Records 0…count − 1, the number as value and as timestamp in seconds from 1,000."""
    sent = Sent(servers)
    for number in range(count):
        sent.send(topic, b"%d" % number, partition=partition, timestamp=(1_000 + number) * 1_000)
    assert not sent.done().errors


@contextmanager
def consumer(servers: str, **settings: Any) -> Iterator[Consumer]:
    config = {
        "bootstrap.servers": servers,
        "group.id": "unused",
        "enable.auto.commit": False,
        "auto.offset.reset": "earliest",
        **{key.replace("_", "."): value for key, value in settings.items()},
    }
    made = Consumer(config)
    try:
        yield made
    finally:
        made.close()


def take(made: Consumer, count: int) -> list[Message]:
    """The next `count` records; an error of the consumer fails the test."""
    found: list[Message] = []

    def step() -> bool:
        for message in made.consume(count - len(found), timeout=0.2):
            assert message.error() is None, message.error()
            found.append(message)
        return len(found) >= count

    until(step)
    return found


def values(messages: list[Message]) -> list[bytes | None]:
    return [message.value() for message in messages]


# -- produce ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_acks(bootstrap_servers: str, topic: str, acks: str) -> None:
    sent = Sent(bootstrap_servers, acks=acks)
    for number in range(100):
        sent.send(topic, b"%d" % number)
    sent.done()
    assert not sent.errors
    if acks != "0":
        assert sorted(message.offset() for message in sent.messages) == list(range(100))
    with consumer(bootstrap_servers) as reader:
        reader.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
        assert values(take(reader, 100)) == [b"%d" % number for number in range(100)]


@pytest.mark.parametrize("codec", CODECS)
def test_codecs(bootstrap_servers: str, topic: str, codec: str) -> None:
    body = [b"%d " % number * 200 for number in range(50)]
    sent = Sent(bootstrap_servers, compression_type=codec)
    for value in body:
        sent.send(topic, value)
    assert not sent.done().errors
    with consumer(bootstrap_servers, check_crcs=True) as reader:
        reader.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
        assert values(take(reader, 50)) == body


def test_keys_values_headers_and_times_come_back_as_sent(bootstrap_servers: str, topic: str) -> None:
    sent = Sent(bootstrap_servers)
    headers = [("a", b"1"), ("a", b"2"), ("empty", b""), ("null", None), ("žluť", b"\x00\xff")]
    sent.send(topic, None, key=b"tombstone", timestamp=1)
    sent.send(topic, b"no key", timestamp=2)
    sent.send(topic, b"", key=b"", headers=headers, timestamp=1_700_000_000_000)
    assert not sent.done().errors
    with consumer(bootstrap_servers) as reader:
        reader.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
        tombstone, keyless, full = take(reader, 3)
    assert (tombstone.key(), tombstone.value()) == (b"tombstone", None)
    assert (keyless.key(), keyless.value(), keyless.headers()) == (None, b"no key", None)
    assert (full.key(), full.value(), full.headers()) == (b"", b"", headers)
    assert [message.timestamp() for message in (tombstone, keyless, full)] == [
        (TIMESTAMP_CREATE_TIME, 1),
        (TIMESTAMP_CREATE_TIME, 2),
        (TIMESTAMP_CREATE_TIME, 1_700_000_000_000),
    ]


def test_log_append_time(bootstrap_servers: str, make_topic: MakeTopic) -> None:
    topic = make_topic(1, **{"message.timestamp.type": "LogAppendTime"})
    before_ms = int(time.time() * 1000) - 1
    sent = Sent(bootstrap_servers)
    sent.send(topic, b"x", timestamp=1)
    assert not sent.done().errors
    with consumer(bootstrap_servers) as reader:
        reader.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
        (message,) = take(reader, 1)
    kind, timestamp_ms = message.timestamp()
    assert kind == TIMESTAMP_LOG_APPEND_TIME
    assert before_ms <= timestamp_ms <= time.time() * 1000 + 1


def test_records_near_the_largest_size(bootstrap_servers: str, make_topic: MakeTopic) -> None:
    limit = 1 << 20
    topic = make_topic(1, **{"max.message.bytes": str(limit)})
    sent = Sent(bootstrap_servers, message_max_bytes=4 * limit)
    largest = bytes(limit - 100)
    sent.send(topic, largest)
    sent.send(topic, bytes(limit))
    sent.done()
    assert [error.code() for error in sent.errors] == [KafkaError.MSG_SIZE_TOO_LARGE]
    with consumer(bootstrap_servers, fetch_message_max_bytes=1000) as reader:
        # The first batch of an answer comes whole, however small the reader's limit is.
        reader.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
        assert values(take(reader, 1)) == [largest]
        assert reader.get_watermark_offsets(TopicPartition(topic, 0)) == (0, 1)


def test_an_idempotent_producer_keeps_the_order(bootstrap_servers: str, make_topic: MakeTopic) -> None:
    topic = make_topic(3)
    sent = Sent(bootstrap_servers, enable_idempotence=True, linger_ms=0, batch_num_messages=10)
    for number in range(3_000):
        sent.send(topic, b"%d" % number, partition=number % 3)
        sent.producer.poll(0)
    assert not sent.done().errors
    with consumer(bootstrap_servers) as reader:
        for partition in range(3):
            reader.assign([TopicPartition(topic, partition, OFFSET_BEGINNING)])
            assert values(take(reader, 1_000)) == [b"%d" % number for number in range(partition, 3_000, 3)]
            assert reader.get_watermark_offsets(TopicPartition(topic, partition)) == (0, 1_000)


# -- consume ----------------------------------------------------------------------------------------------------------


def test_from_an_offset_to_the_end_and_back(bootstrap_servers: str, topic: str) -> None:
    fill(bootstrap_servers, topic, 100)
    with consumer(bootstrap_servers, enable_partition_eof=True) as reader:
        reader.assign([TopicPartition(topic, 0, 90)])
        assert values(take(reader, 10)) == [b"%d" % number for number in range(90, 100)]
        message = until(lambda: reader.poll(0.2))
        assert message.error().code() == KafkaError._PARTITION_EOF
        assert message.offset() == 100
        reader.seek(TopicPartition(topic, 0, 5))
        assert values(take(reader, 1)) == [b"5"]
        reader.assign([TopicPartition(topic, 0, OFFSET_END)])
        assert until(lambda: reader.poll(0.2)).error().code() == KafkaError._PARTITION_EOF
        fill(bootstrap_servers, topic, 1)
        assert until(lambda: reader.poll(0.2)).offset() == 100


def test_from_a_time(bootstrap_servers: str, make_topic: MakeTopic) -> None:
    topic = make_topic(2)
    fill(bootstrap_servers, topic, 100, partition=0)
    with consumer(bootstrap_servers) as reader:
        asked = [TopicPartition(topic, 0, 1_042_000), TopicPartition(topic, 1, 0)]
        assert [found.offset for found in reader.offsets_for_times(asked, timeout=10)] == [42, OFFSET_END]
        assert [
            reader.offsets_for_times([TopicPartition(topic, 0, time_ms)], timeout=10)[0].offset
            for time_ms in (0, 1_000_001, 1_099_000, 1_099_001)
        ] == [0, 1, 99, OFFSET_END]
        reader.assign([TopicPartition(topic, 0, 42)])
        assert values(take(reader, 2)) == [b"42", b"43"]


def test_an_offset_outside_the_log_is_reset_as_configured(bootstrap_servers: str, topic: str) -> None:
    fill(bootstrap_servers, topic, 10)
    with consumer(bootstrap_servers) as reader:
        reader.assign([TopicPartition(topic, 0, 10_000)])
        assert values(take(reader, 1)) == [b"0"]
    with consumer(bootstrap_servers, auto_offset_reset="error") as reader:
        reader.assign([TopicPartition(topic, 0, 10_000)])
        message = until(lambda: reader.poll(0.2))
        # librdkafka's own code for "no reset wanted"; the broker's OFFSET_OUT_OF_RANGE stands in the text.
        assert message.error().code() == KafkaError._AUTO_OFFSET_RESET
        assert "out of range" in message.error().str().lower()


def test_pause_and_resume(bootstrap_servers: str, make_topic: MakeTopic) -> None:
    topic = make_topic(2)
    fill(bootstrap_servers, topic, 10, partition=0)
    fill(bootstrap_servers, topic, 10, partition=1)
    with consumer(bootstrap_servers) as reader:
        reader.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in range(2)])
        reader.pause([TopicPartition(topic, 1)])
        assert {message.partition() for message in take(reader, 10)} == {0}
        reader.resume([TopicPartition(topic, 1)])
        assert {message.partition() for message in take(reader, 10)} == {1}


# -- groups -----------------------------------------------------------------------------------------------------------


class Member(threading.Thread):
    """A group member in a thread of its own, so that a rebalance does not wait for the other one's turn."""

    def __init__(self, servers: str, group: str, topic: str, **settings: Any) -> None:
        super().__init__(name=f"member of {group}", daemon=True)
        self.seen: list[tuple[int, int]] = []
        """(partition, offset) of every record, in the order it came."""
        self.owned: set[int] = set()
        self.rebalances = 0
        self.leaving = threading.Event()
        self._consumer = Consumer(
            {
                "bootstrap.servers": servers,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "session.timeout.ms": 6_000,
                "heartbeat.interval.ms": 200,
                **settings,
            }
        )
        self._consumer.subscribe([topic], on_assign=self._assigned, on_revoke=self._revoked)
        self.start()

    def _assigned(self, reader: Consumer, partitions: list[TopicPartition]) -> None:
        self.rebalances += 1
        self.owned = {partition.partition for partition in partitions}

    def _revoked(self, reader: Consumer, partitions: list[TopicPartition]) -> None:
        self.owned = set()

    def run(self) -> None:
        with closing(self._consumer):
            while not self.leaving.is_set():
                message = self._consumer.poll(0.05)
                if message is not None and message.error() is None:
                    self.seen.append((message.partition(), message.offset()))
                    self._commit(message)

    def _commit(self, message: Message) -> None:
        try:
            self._consumer.commit(message, asynchronous=False)
        except KafkaException:
            pass  # a rebalance or a restart came in between: the record comes again, as it must

    def leave(self) -> None:
        self.leaving.set()
        self.join(DEADLINE_S)
        assert not self.is_alive()


def committed(servers: str, group: str, topic: str, partitions: int) -> dict[int, int]:
    with consumer(servers, group_id=group) as reader:
        asked = [TopicPartition(topic, partition) for partition in range(partitions)]
        return {found.partition: found.offset for found in reader.committed(asked, timeout=10)}


def test_two_members_share_and_the_next_one_goes_on(
    bootstrap_servers: str, make_topic: MakeTopic, name: str, members: Callable[..., Member]
) -> None:
    topic = make_topic(4)
    two_share_and_the_next_one_goes_on(members, fill, committed, bootstrap_servers, name, topic)


@pytest.mark.parametrize("strategy", ["cooperative-sticky", "roundrobin"])
def test_other_assignors(
    bootstrap_servers: str, make_topic: MakeTopic, name: str, members: Callable[..., Member], strategy: str
) -> None:
    topic = make_topic(2)
    settings = {"partition.assignment.strategy": strategy}
    first = members(bootstrap_servers, name, topic, **settings)
    wait_for(lambda: first.rebalances)
    second = members(bootstrap_servers, name, topic, **settings)
    wait_for(lambda: second.owned)
    for partition in range(2):
        fill(bootstrap_servers, topic, 5, partition)
    wait_for(lambda: len(set(first.seen) | set(second.seen)) == 10)
    assert first.seen
    assert second.seen


def test_a_static_member_comes_back_without_a_rebalance(
    bootstrap_servers: str, make_topic: MakeTopic, name: str, members: Callable[..., Member]
) -> None:
    a_static_member_comes_back(members, bootstrap_servers, name, make_topic(2), "group.instance.id")


def test_a_second_owner_of_a_static_name_fences_the_first(bootstrap_servers: str, topic: str, name: str) -> None:
    settings = {"group.id": name, "group.instance.id": "one", "heartbeat_interval_ms": 100}
    with consumer(bootstrap_servers, **settings) as first, consumer(bootstrap_servers, **settings) as second:
        first.subscribe([topic])
        until(lambda: first.poll(0.05) or first.assignment())
        second.subscribe([topic])
        until(lambda: second.poll(0.05) or second.assignment())
        message = until(lambda: first.poll(0.2))
        assert message.error().code() in (KafkaError.FENCED_INSTANCE_ID, KafkaError._FATAL)


def test_members_go_on_after_a_restart(name: str, own_broker: Broker, members: Callable[..., Member]) -> None:
    servers = own_broker.bootstrap_servers
    admin = AdminClient({"bootstrap.servers": servers})
    admin.create_topics([NewTopic(name, 2, 1)])[name].result(10)
    settings = {"reconnect.backoff.ms": 10, "reconnect.backoff.max.ms": 100}
    both = [members(servers, name, name, **settings) for _ in range(2)]
    both_go_on_after_a_restart(both, fill, committed, own_broker, name)


# -- administration ---------------------------------------------------------------------------------------------------


def test_topics_partitions_and_configs(bootstrap_servers: str, admin: AdminClient, make_topic: MakeTopic) -> None:
    topic = make_topic(2, **{"retention.ms": "3600000"})
    with pytest.raises(KafkaException) as refusal:
        admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(10)
    assert refusal.value.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS
    admin.create_partitions([NewPartitions(topic, 5)])[topic].result(10)
    metadata = admin.list_topics(topic, timeout=10)
    assert sorted(metadata.topics[topic].partitions) == list(range(5))

    resource = ConfigResource(ResourceType.TOPIC, topic)
    assert admin.describe_configs([resource])[resource].result(10)["retention.ms"].value == "3600000"
    change = ConfigResource(
        ResourceType.TOPIC,
        topic,
        incremental_configs=[
            ConfigEntry("retention.ms", None, incremental_operation=AlterConfigOpType.DELETE),
            ConfigEntry("max.message.bytes", "12345", incremental_operation=AlterConfigOpType.SET),
        ],
    )
    admin.incremental_alter_configs([change])[change].result(10)
    entries = admin.describe_configs([resource])[resource].result(10)
    assert entries["max.message.bytes"].value == "12345"
    assert not entries["max.message.bytes"].is_default
    assert entries["retention.ms"].is_default
    for key, value in (("no.such.config", "1"), ("cleanup.policy", "shrink")):
        change = ConfigResource(
            ResourceType.TOPIC,
            topic,
            incremental_configs=[ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)],
        )
        with pytest.raises(KafkaException) as refusal:
            admin.incremental_alter_configs([change])[change].result(10)
        assert refusal.value.args[0].code() in (KafkaError.INVALID_CONFIG, KafkaError.INVALID_REQUEST)


def test_a_deleted_topic_is_gone(bootstrap_servers: str, admin: AdminClient, topic: str) -> None:
    fill(bootstrap_servers, topic, 10)
    admin.delete_topics([topic])[topic].result(10)
    assert topic not in admin.list_topics(timeout=10).topics
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(10)
    with consumer(bootstrap_servers) as reader:
        assert reader.get_watermark_offsets(TopicPartition(topic, 0), timeout=10) == (0, 0)


def test_delete_records_and_list_offsets(bootstrap_servers: str, admin: AdminClient, topic: str) -> None:
    fill(bootstrap_servers, topic, 100)
    place = TopicPartition(topic, 0, 60)
    assert admin.delete_records([place])[place].result(10).low_watermark == 60
    found = {
        name: admin.list_offsets({TopicPartition(topic, 0): spec})[TopicPartition(topic, 0)].result(10).offset
        for name, spec in {
            "earliest": OffsetSpec.earliest(),
            "latest": OffsetSpec.latest(),
            "largest time": OffsetSpec.max_timestamp(),
            "a time": OffsetSpec.for_timestamp(1_070_000),
        }.items()
    }
    assert found == {"earliest": 60, "latest": 100, "largest time": 99, "a time": 70}
    with consumer(bootstrap_servers) as reader:
        reader.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
        assert values(take(reader, 1)) == [b"60"]


def test_groups_and_their_offsets(
    bootstrap_servers: str, admin: AdminClient, make_topic: MakeTopic, name: str, members: Callable[..., Member]
) -> None:
    topic = make_topic(2)
    fill(bootstrap_servers, topic, 10)
    member = members(bootstrap_servers, name, topic, **{"client.id": "reader"})
    wait_for(lambda: len(member.seen) == 10)
    listed = {group.group_id: group for group in admin.list_consumer_groups().result(10).valid}
    assert listed[name].state.name == "STABLE"
    described = admin.describe_consumer_groups([name])[name].result(10)
    assert [(who.client_id, len(who.assignment.topic_partitions)) for who in described.members] == [("reader", 2)]
    with pytest.raises(KafkaException) as refusal:
        admin.delete_consumer_groups([name])[name].result(10)
    assert refusal.value.args[0].code() == KafkaError.NON_EMPTY_GROUP
    member.leave()

    moved = ConsumerGroupTopicPartitions(name, [TopicPartition(topic, 0, 3)])
    admin.alter_consumer_group_offsets([moved])[name].result(10)
    asked = ConsumerGroupTopicPartitions(name, [TopicPartition(topic, 0)])
    found = admin.list_consumer_group_offsets([asked])[name].result(10)
    assert [place.offset for place in found.topic_partitions] == [3]
    admin.delete_consumer_groups([name])[name].result(10)
    assert name not in {group.group_id for group in admin.list_consumer_groups().result(10).valid}


def test_the_cluster(bootstrap_servers: str, admin: AdminClient) -> None:
    cluster = admin.describe_cluster().result(10)
    assert sorted(f"{node.host}:{node.port}" for node in cluster.nodes) == nodes_at(bootstrap_servers)
    # Any of them, as in a Kafka with KRaft: each takes administrative requests.
    assert cluster.controller.id in {node.id for node in cluster.nodes}
    assert cluster.cluster_id
