"""MirrorMaker 2 between two brokers, both ways: topics with partitions and configurations, records, and offsets of
groups.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic

from halfmoon.testing import Broker
from tests.clients.polling import until
from tests.interop.committed import committed_values
from tests.interop.java_programs import Program, jars, properties

PARTITIONS = 4
RECORDS = 2_000
GROUP = "readers"
CONFIGS = {"compression.type": "lz4", "segment.ms": "7200000", "retention.ms": "123456789"}

pytestmark = [pytest.mark.interop, pytest.mark.timeout(400)]


@pytest.fixture
def clusters() -> Iterator[dict[str, str]]:
    """Alias → where it answers."""
    with Broker() as east, Broker() as west:
        yield {"east": east.bootstrap_servers, "west": west.bootstrap_servers}


@pytest.fixture
def mirror(tmp_path: Path, clusters: dict[str, str]) -> Iterator[Program]:
    settings: dict[str, object] = {
        "clusters": ",".join(clusters), "east->west.enabled": "true", "west->east.enabled": "true",
        "topics": "orders.*", "groups": GROUP, "sync.group.offsets.enabled": "true",
        "replication.factor": 1, "checkpoints.topic.replication.factor": 1, "heartbeats.topic.replication.factor": 1,
        "offset-syncs.topic.replication.factor": 1, "offset.storage.replication.factor": 1,
        "status.storage.replication.factor": 1, "config.storage.replication.factor": 1,
        "refresh.topics.interval.seconds": 2, "sync.topic.configs.interval.seconds": 2,
        "emit.checkpoints.interval.seconds": 2, "sync.group.offsets.interval.seconds": 2,
        "refresh.groups.interval.seconds": 2, "offset.lag.max": 10,
        "dedicated.mode.enable.internal.rest": "false",
        **{f"{alias}.bootstrap.servers": servers for alias, servers in clusters.items()},
    }  # fmt: skip
    path = properties(tmp_path / "mirror.properties", settings)
    program = Program(tmp_path, "mirror", jars("kafka"), "org.apache.kafka.connect.mirror.MirrorMaker", str(path))
    yield program
    program.kill()


def fill(servers: str, topic: str, prefix: str) -> None:
    admin = AdminClient({"bootstrap.servers": servers})
    admin.create_topics([NewTopic(topic, PARTITIONS, 1, config=CONFIGS)])[topic].result(10)
    producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True})
    for number in range(RECORDS):
        producer.produce(topic, f"{prefix}{number}".encode(), partition=number % PARTITIONS)
    assert producer.flush(30) == 0


def read_half(servers: str, topic: str) -> None:
    """A group reads half of each partition, and commits."""
    consumer = Consumer({"bootstrap.servers": servers, "group.id": GROUP, "enable.auto.commit": False})
    half = RECORDS // PARTITIONS // 2
    consumer.commit(offsets=[TopicPartition(topic, each, half) for each in range(PARTITIONS)], asynchronous=False)
    consumer.close()


def test_both_ways(clusters: dict[str, str], mirror: Program) -> None:
    for alias, servers in clusters.items():
        fill(servers, f"orders-{alias}", alias)
        read_half(servers, f"orders-{alias}")
    for here, there in (("east", "west"), ("west", "east")):
        copy = f"{here}.orders-{here}"
        admin = AdminClient({"bootstrap.servers": clusters[there]})
        until(lambda: copy in admin.list_topics(timeout=10).topics, deadline_s=120)  # noqa: B023
        assert len(admin.list_topics(copy, timeout=10).topics[copy].partitions) == PARTITIONS, mirror.report()
        wanted = sorted(f"{here}{number}" for number in range(RECORDS))
        until(lambda: _count(clusters[there], copy) >= RECORDS, deadline_s=120)  # noqa: B023
        assert sorted(committed_values(clusters[there], copy, PARTITIONS)) == wanted
        resource = ConfigResource(ConfigResource.Type.TOPIC, copy)
        configs = admin.describe_configs([resource])[resource].result(10)
        assert {name: configs[name].value for name in CONFIGS} == CONFIGS
        until(lambda: _committed(clusters[there], copy) > 0, deadline_s=60)  # noqa: B023
    assert mirror.process.poll() is None, mirror.report()
    assert "ERROR" not in mirror.log_path.read_text()


def _count(servers: str, topic: str) -> int:
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "none"})
    ends = [consumer.get_watermark_offsets(TopicPartition(topic, each), timeout=10)[1] for each in range(PARTITIONS)]
    consumer.close()
    return sum(ends)


def _committed(servers: str, topic: str) -> int:
    """Of the group, as MirrorMaker translates it."""
    consumer = Consumer({"bootstrap.servers": servers, "group.id": GROUP})
    found = consumer.committed([TopicPartition(topic, each) for each in range(PARTITIONS)], timeout=10)
    consumer.close()
    return sum(max(0, place.offset) for place in found)
