"""Real processes over one data directory, whose number is another at each start."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from halfmoon.testing import Broker

TOPIC, PARTITIONS, GROUP = "kept", 7, "readers"
COUNTS = (1, 2, 5, 1)


def serving(folder: Path, workers: int) -> Broker:
    return Broker(data_dir=str(folder), workers=workers, config={"topics": {"partitions": 1}})


def produce(servers: str, start: int) -> None:
    """Ten records to each partition, numbered from `start` on, in one transaction."""
    producer = Producer({"bootstrap.servers": servers, "transactional.id": "kept"})
    producer.init_transactions(30)
    producer.begin_transaction()
    for number in range(start, start + 10):
        for partition in range(PARTITIONS):
            producer.produce(TOPIC, b"%d" % number, partition=partition)
    producer.commit_transaction(30)


def read(servers: str) -> dict[int, list[int]]:
    """By partition, all that is committed."""
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "eof", "enable.partition.eof": True})
    consumer.assign([TopicPartition(TOPIC, partition, 0) for partition in range(PARTITIONS)])
    found: dict[int, list[int]] = {partition: [] for partition in range(PARTITIONS)}
    left = set(found)
    while left:
        for message in consumer.consume(100, 1):
            error = message.error()
            if error is None:
                found[message.partition()].append(int(message.value() or b""))
            else:
                assert error.code() == KafkaError._PARTITION_EOF
                left.discard(message.partition())
    consumer.close()
    return found


def leaders(admin: AdminClient) -> set[int]:
    found = admin.list_topics(TOPIC, timeout=30).topics[TOPIC]
    return {partition.leader for partition in found.partitions.values()}


def committed(admin: AdminClient) -> dict[int, int]:
    (future,) = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(GROUP)]).values()
    return {each.partition: each.offset for each in future.result(30).topic_partitions}


@pytest.mark.timeout(300)
def test_the_number_of_workers_is_another_at_each_start(tmp_path: Path) -> None:
    expected: dict[int, list[int]] = {partition: [] for partition in range(PARTITIONS)}
    offsets: dict[int, int] = {}
    for round_, workers in enumerate(COUNTS):
        with serving(tmp_path / "data", workers) as broker:
            servers = broker.bootstrap_servers
            admin = AdminClient({"bootstrap.servers": servers})
            if not round_:
                admin.create_topics([NewTopic(TOPIC, PARTITIONS)])[TOPIC].result(30)
            assert len(leaders(admin)) == workers
            assert read(servers) == expected
            assert committed(admin) == offsets
            produce(servers, 10 * round_)
            for numbers in expected.values():
                numbers += range(10 * round_, 10 * round_ + 10)
            assert read(servers) == expected
            offsets = dict.fromkeys(range(PARTITIONS), 11 * (round_ + 1))
            commit(servers, offsets)


def commit(servers: str, offsets: dict[int, int]) -> None:
    consumer = Consumer({"bootstrap.servers": servers, "group.id": GROUP, "enable.auto.commit": False})
    places: list[Any] = [TopicPartition(TOPIC, partition, offset) for partition, offset in offsets.items()]
    for place in consumer.commit(offsets=places, asynchronous=False) or ():
        assert place.error is None
    consumer.close()
