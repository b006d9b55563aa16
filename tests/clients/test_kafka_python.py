"""kafka-python: produce, consume, group and administration."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pytest
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import AlterConfigOp, ConfigResource, KafkaAdminClient, OffsetSpec
from kafka.errors import KafkaError, MessageSizeTooLargeError, OffsetOutOfRangeError, TopicAlreadyExistsError
from kafka.structs import OffsetAndMetadata, OffsetAndTimestamp

from halfmoon.testing import Broker
from tests.clients.group_life import (
    a_static_member_comes_back,
    both_go_on_after_a_restart,
    two_share_and_the_next_one_goes_on,
)
from tests.clients.kafka_python import Member, reader
from tests.clients.polling import DEADLINE_S, until, wait_for
from tests.several_workers import nodes_at

MakeTopic = Callable[..., str]
CODECS = [None, "gzip", "snappy", "lz4", "zstd"]


def send(servers: str, topic: str, records: list[dict[str, Any]], **settings: Any) -> list[Any]:
    """Send the records; the metadata of each, or the error it failed with."""
    ends: list[Any] = []
    with closing(KafkaProducer(bootstrap_servers=servers, **settings)) as producer:
        for future in [producer.send(topic, **{"partition": 0, **record}) for record in records]:
            try:
                ends.append(future.get(timeout=DEADLINE_S))
            except KafkaError as error:
                ends.append(error)
    return ends


def fill(servers: str, topic: str, count: int, partition: int = 0) -> None:
    """Records 0…count − 1, the number as value and as timestamp in seconds from 1,000."""
    numbers = range(count)
    records = [{"value": b"%d" % n, "timestamp_ms": (1_000 + n) * 1_000, "partition": partition} for n in numbers]
    assert all(end.offset >= 0 for end in send(servers, topic, records))


def take(consumer: KafkaConsumer, count: int) -> list[Any]:
    found: list[Any] = []

    def step() -> bool:
        for records in consumer.poll(timeout_ms=1_000, max_records=count - len(found)).values():
            found.extend(records)
        return len(found) >= count

    until(step)
    return found


@pytest.fixture
def client(bootstrap_servers: str) -> Iterator[KafkaAdminClient]:
    with closing(KafkaAdminClient(bootstrap_servers=bootstrap_servers)) as made:
        yield made


# -- produce ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("acks", [0, 1, "all"])
def test_acks(bootstrap_servers: str, topic: str, acks: int | str) -> None:
    records = [{"value": b"%d" % number} for number in range(100)]
    ends = send(bootstrap_servers, topic, records, acks=acks, enable_idempotence=acks == "all")
    if acks != 0:
        assert [end.offset for end in ends] == list(range(100))
    with closing(reader(bootstrap_servers)) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        assert [record.value for record in take(consumer, 100)] == [b"%d" % number for number in range(100)]


@pytest.mark.parametrize("codec", CODECS)
def test_codecs(bootstrap_servers: str, topic: str, codec: str | None) -> None:
    body = [b"%d " % number * 200 for number in range(50)]
    ends = send(bootstrap_servers, topic, [{"value": value} for value in body], compression_type=codec, linger_ms=5)
    assert [end.offset for end in ends] == list(range(50))
    with closing(reader(bootstrap_servers, check_crcs=True)) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        assert [record.value for record in take(consumer, 50)] == body


def test_keys_values_headers_and_times_come_back_as_sent(bootstrap_servers: str, topic: str) -> None:
    headers = [("a", b"1"), ("a", b"2"), ("empty", b""), ("žluť", b"\x00\xff")]
    send(
        bootstrap_servers,
        topic,
        [
            {"key": b"tombstone", "value": None, "timestamp_ms": 1},
            {"value": b"no key", "timestamp_ms": 2},
            {"key": b"", "value": b"", "headers": headers, "timestamp_ms": 1_700_000_000_000},
        ],
    )
    with closing(reader(bootstrap_servers)) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        found = take(consumer, 3)
    fields = ("key", "value", "headers", "timestamp", "timestamp_type")
    assert [tuple(getattr(record, field) for field in fields) for record in found] == [
        (b"tombstone", None, [], 1, 0),
        (None, b"no key", [], 2, 0),
        (b"", b"", headers, 1_700_000_000_000, 0),
    ]


def test_log_append_time(bootstrap_servers: str, make_topic: MakeTopic) -> None:
    topic = make_topic(1, **{"message.timestamp.type": "LogAppendTime"})
    before_ms = int(time.time() * 1000) - 1
    (end,) = send(bootstrap_servers, topic, [{"value": b"x", "timestamp_ms": 1}])
    assert before_ms <= end.timestamp <= time.time() * 1000 + 1
    with closing(reader(bootstrap_servers)) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        (record,) = take(consumer, 1)
    assert (record.timestamp, record.timestamp_type) == (end.timestamp, 1)


def test_records_near_the_largest_size(bootstrap_servers: str, make_topic: MakeTopic) -> None:
    limit = 1 << 20
    topic = make_topic(1, **{"max.message.bytes": str(limit)})
    largest = bytes(limit - 100)
    records = [{"value": largest}, {"value": bytes(limit)}]
    taken, refused = send(bootstrap_servers, topic, records, max_request_size=4 * limit)
    assert taken.offset == 0
    assert isinstance(refused, MessageSizeTooLargeError)
    with closing(reader(bootstrap_servers, max_partition_fetch_bytes=1000)) as consumer:
        # The first batch of an answer comes whole, however small the reader's limit is.
        consumer.assign([TopicPartition(topic, 0)])
        assert [record.value for record in take(consumer, 1)] == [largest]
        assert consumer.end_offsets([TopicPartition(topic, 0)]) == {TopicPartition(topic, 0): 1}


def test_an_idempotent_producer_keeps_the_order(bootstrap_servers: str, make_topic: MakeTopic) -> None:
    topic = make_topic(3)
    records = [{"value": b"%d" % number, "partition": number % 3} for number in range(3_000)]
    ends = send(bootstrap_servers, topic, records, enable_idempotence=True, linger_ms=0, batch_size=200)
    assert [end.offset for end in ends] == [number // 3 for number in range(3_000)]
    with closing(reader(bootstrap_servers)) as consumer:
        for partition in range(3):
            consumer.assign([TopicPartition(topic, partition)])
            expected = [b"%d" % number for number in range(partition, 3_000, 3)]
            assert [record.value for record in take(consumer, 1_000)] == expected


# -- consume ----------------------------------------------------------------------------------------------------------


def test_from_an_offset_to_the_end_and_back(bootstrap_servers: str, topic: str) -> None:
    fill(bootstrap_servers, topic, 100)
    place = TopicPartition(topic, 0)
    with closing(reader(bootstrap_servers)) as consumer:
        consumer.assign([place])
        assert consumer.beginning_offsets([place]) == {place: 0}
        assert consumer.end_offsets([place]) == {place: 100}
        consumer.seek(place, 90)
        assert [record.offset for record in take(consumer, 10)] == list(range(90, 100))
        assert consumer.position(place) == consumer.highwater(place) == 100
        assert consumer.poll(timeout_ms=50) == {}
        consumer.seek(place, 5)
        assert take(consumer, 1)[0].value == b"5"
        consumer.seek_to_end(place)
        assert consumer.position(place) == 100
        fill(bootstrap_servers, topic, 1)
        assert take(consumer, 1)[0].offset == 100
        consumer.seek_to_beginning(place)
        assert take(consumer, 1)[0].offset == 0


def test_from_a_time(bootstrap_servers: str, make_topic: MakeTopic) -> None:
    topic = make_topic(2)
    fill(bootstrap_servers, topic, 100)
    full, empty = TopicPartition(topic, 0), TopicPartition(topic, 1)
    with closing(reader(bootstrap_servers)) as consumer:
        found = consumer.offsets_for_times({full: 1_041_001, empty: 0})
        assert found == {full: OffsetAndTimestamp(42, 1_042_000, found[full].leader_epoch), empty: None}
        assert consumer.offsets_for_times({full: 1_099_001}) == {full: None}


def test_an_offset_outside_the_log(bootstrap_servers: str, topic: str) -> None:
    fill(bootstrap_servers, topic, 10)
    place = TopicPartition(topic, 0)
    with closing(reader(bootstrap_servers)) as consumer:
        consumer.assign([place])
        consumer.seek(place, 10_000)
        assert take(consumer, 1)[0].offset == 0
    with closing(reader(bootstrap_servers, auto_offset_reset="none")) as consumer:
        consumer.assign([place])
        consumer.seek(place, 10_000)
        with pytest.raises(OffsetOutOfRangeError):
            take(consumer, 1)


def test_pause_and_resume(bootstrap_servers: str, make_topic: MakeTopic) -> None:
    topic = make_topic(2)
    places = [TopicPartition(topic, partition) for partition in range(2)]
    for partition in range(2):
        fill(bootstrap_servers, topic, 10, partition)
    with closing(reader(bootstrap_servers)) as consumer:
        consumer.assign(places)
        consumer.pause(places[1])
        assert {record.partition for record in take(consumer, 10)} == {0}
        consumer.resume(places[1])
        assert {record.partition for record in take(consumer, 10)} == {1}


# -- groups -----------------------------------------------------------------------------------------------------------


def committed(servers: str, group: str, topic: str, partitions: int) -> dict[int, int | None]:
    with closing(reader(servers, group_id=group)) as consumer:
        return {number: consumer.committed(TopicPartition(topic, number)) for number in range(partitions)}


def test_two_members_share_and_the_next_one_goes_on(
    bootstrap_servers: str, make_topic: MakeTopic, name: str, members: Callable[..., Member]
) -> None:
    topic = make_topic(4)
    two_share_and_the_next_one_goes_on(members, fill, committed, bootstrap_servers, name, topic)


def test_a_static_member_comes_back_without_a_rebalance(
    bootstrap_servers: str, make_topic: MakeTopic, name: str, members: Callable[..., Member]
) -> None:
    a_static_member_comes_back(members, bootstrap_servers, name, make_topic(2), "group_instance_id")


def test_members_go_on_after_a_restart(name: str, own_broker: Broker, members: Callable[..., Member]) -> None:
    servers = own_broker.bootstrap_servers
    with closing(KafkaAdminClient(bootstrap_servers=servers)) as client:
        client.create_topics({name: {"num_partitions": 2}})
    both = [members(servers, name, name) for _ in range(2)]
    both_go_on_after_a_restart(both, fill, committed, own_broker, name)


# -- administration ---------------------------------------------------------------------------------------------------


def topic_configs(client: KafkaAdminClient, topic: str, key: str) -> dict[str, Any]:
    resource = ConfigResource("TOPIC", topic, {key: None})
    return client.describe_configs([resource], config_filter="all")["topic"][topic][key]


def test_topics_partitions_and_configs(client: KafkaAdminClient, name: str) -> None:
    client.create_topics({name: {"num_partitions": 2, "configs": {"retention.ms": "3600000"}}})
    with pytest.raises(TopicAlreadyExistsError):
        client.create_topics([name])
    client.create_partitions({name: 5})
    (described,) = client.describe_topics([name])
    assert sorted(partition["partition_index"] for partition in described["partitions"]) == list(range(5))
    assert topic_configs(client, name, "retention.ms")["value"] == "3600000"
    change = {"max.message.bytes": "12345", "retention.ms": (AlterConfigOp.DELETE, None)}
    client.alter_configs([ConfigResource("TOPIC", name, change)])
    assert topic_configs(client, name, "max.message.bytes")["value"] == "12345"
    assert topic_configs(client, name, "retention.ms")["value"] == "604800000"
    for key, value in (("no.such.config", "1"), ("cleanup.policy", "shrink")):
        answer = client.alter_configs([ConfigResource("TOPIC", name, {key: value})], raise_on_unknown=False)
        assert "InvalidConfigurationError" in answer["topic"][name]
    client.delete_topics([name])
    assert name not in client.list_topics()


def test_delete_records_and_list_offsets(bootstrap_servers: str, client: KafkaAdminClient, topic: str) -> None:
    fill(bootstrap_servers, topic, 100)
    place = TopicPartition(topic, 0)
    assert client.delete_records({place: 60})[place]["low_watermark"] == 60
    specs = [OffsetSpec.EARLIEST, OffsetSpec.LATEST, OffsetSpec.MAX_TIMESTAMP, 1_070_000]
    found = [client.list_partition_offsets({place: spec})[place].offset for spec in specs]
    assert found == [60, 100, 99, 70]


def test_groups_and_their_offsets(
    bootstrap_servers: str,
    client: KafkaAdminClient,
    make_topic: MakeTopic,
    name: str,
    members: Callable[..., Member],
) -> None:
    topic = make_topic(2)
    fill(bootstrap_servers, topic, 10)
    member = members(bootstrap_servers, name, topic, client_id="reader")
    wait_for(lambda: len(member.seen) == 10)
    assert [group["group_state"] for group in client.list_groups() if group["group_id"] == name] == ["Stable"]
    (described,) = client.describe_groups([name])[name]["members"]
    assert described["client_id"] == "reader"
    assert client.delete_groups([name]) == {name: "NonEmptyGroupError"}
    member.leave()
    place = TopicPartition(topic, 0)
    assert client.list_group_offsets({name: None})[name][place].offset == 10
    client.alter_group_offsets(name, {place: OffsetAndMetadata(3, "by hand", -1)})
    assert client.list_group_offsets({name: [place]})[name][place].offset == 3
    client.delete_group_offsets(name, [place])
    assert place not in client.list_group_offsets({name: None})[name]
    assert client.delete_groups([name]) == {name: "OK"}
    assert name not in {group["group_id"] for group in client.list_groups()}


def test_the_cluster(bootstrap_servers: str, client: KafkaAdminClient) -> None:
    cluster = client.describe_cluster()
    assert sorted(f"{node['host']}:{node['port']}" for node in cluster["brokers"]) == nodes_at(bootstrap_servers)
    assert cluster["cluster_id"]
