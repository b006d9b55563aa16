"""Requests of the topic and configuration APIs with bytes changed, cut off or added: an answer or MalformedRequest.

The seeds are fixed, so a failure repeats.
"""

from __future__ import annotations

import random
from uuid import UUID

import pytest
from fake_admin_broker import Client, FakeAdminBroker, versions

from halfmoon.adapters.kafka.errors import MalformedRequest
from halfmoon.adapters.kafka.protocol import REQUESTS


def _sample(key: int, version: int) -> bytes:
    """A request with something in every field."""
    request = REQUESTS[key]
    samples = {
        2: lambda: {"topics": [_struct(request.ListOffsetsTopic, name="t", partitions=[
            _struct(request.ListOffsetsTopic.ListOffsetsPartition, partition_index=0, timestamp=-1)])]},
        3: lambda: {"topics": [_struct(request.MetadataRequestTopic, name="t", topic_id=UUID(int=0))]},
        19: lambda: {"topics": [_struct(
            request.CreatableTopic, name="n", num_partitions=-1, replication_factor=-1,
            assignments=[_struct(request.CreatableTopic.CreatableReplicaAssignment, broker_ids=[7])],
            configs=[_struct(request.CreatableTopic.CreatableTopicConfig, name="retention.ms", value="1")])]},
        20: lambda: {"topics": [_struct(request.DeleteTopicState, name="t", topic_id=UUID(int=0))]},
        21: lambda: {"topics": [_struct(request.DeleteRecordsTopic, name="t", partitions=[
            _struct(request.DeleteRecordsTopic.DeleteRecordsPartition, partition_index=0, offset=0)])]},
        22: lambda: {"transactional_id": None},
        23: lambda: {"topics": [_struct(request.OffsetForLeaderTopic, topic="t", partitions=[
            _struct(request.OffsetForLeaderTopic.OffsetForLeaderPartition, partition=0, leader_epoch=1)])]},
        32: lambda: {"resources": [_struct(
            request.DescribeConfigsResource, resource_type=2, resource_name="t", configuration_keys=["retention.ms"])]},
        33: lambda: {"resources": [_struct(request.AlterConfigsResource, resource_type=2, resource_name="t", configs=[
            _struct(request.AlterConfigsResource.AlterableConfig, name="retention.ms", value="1")])]},
        35: lambda: {"topics": [_struct(request.DescribableLogDirTopic, topic="t", partitions=[0])]},
        37: lambda: {"topics": [_struct(request.CreatePartitionsTopic, name="t", count=9, assignments=[
            _struct(request.CreatePartitionsTopic.CreatePartitionsAssignment, broker_ids=[7])])]},
        44: lambda: {"resources": [_struct(request.AlterConfigsResource, resource_type=2, resource_name="t", configs=[
            _struct(request.AlterConfigsResource.AlterableConfig, name="cleanup.policy", value="delete",
                    config_operation=2)])]},
        34: lambda: {"dirs": [_struct(request.AlterReplicaLogDir, path="/", topics=[
            _struct(request.AlterReplicaLogDir.AlterReplicaLogDirTopic, name="t", partitions=[0])])]},
        60: lambda: {},
        74: lambda: {"resource_types": [2]},
        75: lambda: {"topics": [_struct(request.TopicRequest, name="t")],
                     "cursor": _struct(request.Cursor, topic_name="t", partition_index=0)},
    }  # fmt: skip
    return bytes(request(**samples[key]()).encode(version=version))


def _struct(struct: type, **fields: object) -> object:
    return struct(**fields)


KEYS = [2, 3, 19, 20, 21, 22, 23, 32, 33, 34, 35, 37, 44, 60, 74, 75]


@pytest.mark.parametrize("key", KEYS)
def test_changed_bytes(key):
    for version in versions(key):
        sample = _sample(key, version)
        chance = random.Random(f"{key} {version}")
        answered = 0
        for _ in range(150):
            body = bytearray(sample)
            for _ in range(chance.randint(0, 3)):
                body[chance.randrange(len(body))] = chance.choice((0, 1, 2, 0x7F, 0x80, 0xFF, chance.randrange(256)))
            if chance.random() < 0.3:
                del body[chance.randrange(len(body) + 1) :]
            broker = FakeAdminBroker(topics__auto_create=False)
            broker.add("t")
            client = Client(broker)
            try:
                pending = client.send_bytes(key, version, bytes(body))
            except MalformedRequest:
                continue
            client.peer.run_threads()
            broker.flush()
            assert pending.answer is not None
            answered += 1
        assert answered > 0


@pytest.mark.parametrize("key", KEYS)
def test_the_sample_itself_is_understood(key):
    for version in versions(key):
        broker = FakeAdminBroker()
        broker.add("t")
        client = Client(broker)
        pending = client.send_bytes(key, version, _sample(key, version))
        client.peer.run_threads()
        broker.flush()
        assert pending.answer is not None
