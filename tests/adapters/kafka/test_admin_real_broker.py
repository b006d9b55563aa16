"""The topic and configuration APIs over the real core and the real server: what one API changes, the others tell."""

from __future__ import annotations

from uuid import UUID

import pytest
from kafka_rig import Rig

from halfmoon.schema.control import ResourceConfigsSet
from halfmoon.services.configs.state import BROKER
from tests.kafka_messages import made

LIST_OFFSETS, METADATA, CREATE, DELETE, DELETE_RECORDS, PRODUCER_ID, LEADER_EPOCH = 2, 3, 19, 20, 21, 22, 23
DESCRIBE_CONFIGS, LOG_DIRS, PARTITIONS, ALTER_CONFIGS, DESCRIBE_PARTITIONS = 32, 35, 37, 44, 75
ZERO = UUID(int=0)


@pytest.fixture
def rig():
    return Rig(topics__partitions=3, topics__auto_create=True)


@pytest.fixture
def client(rig):
    return rig.client()


def create(client, name: str, partitions: int = -1, **configs: str):
    entries = [
        made(CREATE, "CreatableTopic.CreatableTopicConfig", name=key.replace("_", "."), value=value)
        for key, value in configs.items()
    ]
    topic = made(
        CREATE,
        "CreatableTopic",
        name=name,
        num_partitions=partitions,
        replication_factor=-1,
        assignments=[],
        configs=entries,
    )
    (result,) = client.ask(CREATE, 7, topics=[topic], timeout_ms=1000, validate_only=False).topics
    assert result.error_code == 0
    return result


def metadata(client, name: str, version: int = 13):
    topic = made(METADATA, "MetadataRequestTopic", name=name, topic_id=ZERO)
    (found,) = client.ask(
        METADATA, version, topics=[topic], allow_auto_topic_creation=False, include_topic_authorized_operations=False
    ).topics
    return found


def offset(client, rig, name: str, timestamp: int) -> tuple[int, int, int]:
    wanted = made(
        LIST_OFFSETS,
        "ListOffsetsTopic.ListOffsetsPartition",
        partition_index=0,
        current_leader_epoch=rig.broker.generation,
        timestamp=timestamp,
    )
    topic = made(LIST_OFFSETS, "ListOffsetsTopic", name=name, partitions=[wanted])
    request = client.encode(LIST_OFFSETS, 7, replica_id=-1, isolation_level=0, topics=[topic])
    client.feed(request)
    rig.turn()
    rig.loop.run_threads()
    rig.turn()
    (answer,) = client.answers()
    (result,) = answer.topics[0].partitions
    return result.error_code, result.offset, result.timestamp


def configs(client, name: str, kind: int = 2) -> dict[str, tuple[str, int]]:
    resource = made(
        DESCRIBE_CONFIGS, "DescribeConfigsResource", resource_type=kind, resource_name=name, configuration_keys=None
    )
    (result,) = client.ask(
        DESCRIBE_CONFIGS, 4, resources=[resource], include_synonyms=False, include_documentation=False
    ).results
    return {config.name: (config.value, config.config_source) for config in result.configs}


def test_life_of_a_topic(rig, client):
    created = create(client, "t", 2, retention_ms="1000")
    assert (created.num_partitions, created.topic_id.bytes) == (2, rig.broker.topic("t").id)
    told = metadata(client, "t")
    assert (told.topic_id, len(told.partitions)) == (created.topic_id, 2)
    assert {p.leader_epoch for p in told.partitions} == {rig.broker.generation}

    wider = made(PARTITIONS, "CreatePartitionsTopic", name="t", count=5, assignments=None)
    answer = client.ask(PARTITIONS, 3, topics=[wider], timeout_ms=1000, validate_only=False)
    assert [r.error_code for r in answer.results] == [0]
    assert len(metadata(client, "t").partitions) == 5

    change = made(
        ALTER_CONFIGS,
        "AlterConfigsResource",
        resource_type=2,
        resource_name="t",
        configs=[
            made(
                ALTER_CONFIGS,
                "AlterConfigsResource.AlterableConfig",
                name="max.message.bytes",
                config_operation=0,
                value="77",
            )
        ],
    )
    answer = client.ask(ALTER_CONFIGS, 1, resources=[change], validate_only=False)
    assert [r.error_code for r in answer.responses] == [0]
    assert configs(client, "t")["max.message.bytes"] == ("77", 1)
    assert configs(client, "t")["retention.ms"] == ("1000", 1)
    assert rig.broker.topic("t").rules.max_message_bytes == 77

    gone = made(DELETE, "DeleteTopicState", name=None, topic_id=created.topic_id)
    answer = client.ask(DELETE, 6, topics=[gone], timeout_ms=1000)
    assert [(r.name, r.error_code) for r in answer.responses] == [("t", 0)]
    assert metadata(client, "t").error_code == 3
    assert create(client, "t").topic_id != created.topic_id


def test_what_was_left_out_of_the_nodes_configurations_is_not_shown_as_if_it_held(rig, client):
    dynamic = rig.broker.dynamic_configs
    rig.broker.append_control(ResourceConfigsSet(BROKER, "1", {"num.partitions": "5", "max.connections": "1"}))
    dynamic.apply()
    found = configs(client, "1", kind=4)
    assert found["max.connections"] == ("10000", 5)
    assert found["num.partitions"] == ("5", 2)


def test_asking_for_a_missing_topic_creates_it(rig, client):
    topic = made(METADATA, "MetadataRequestTopic", name="auto")
    answer = client.ask(METADATA, 5, topics=[topic], allow_auto_topic_creation=True)
    assert [(t.error_code, len(t.partitions)) for t in answer.topics] == [(0, 3)]
    assert rig.broker.topic("auto") is not None


def test_offsets(rig, client):
    (partition,) = rig.topic("t", 1)
    rig.append(partition, b"a", b"b")
    rig.append(partition, b"c", b"d", b"e")
    assert offset(client, rig, "t", -2) == (0, 0, -1)
    assert offset(client, rig, "t", -1) == (0, 5, -1)
    assert offset(client, rig, "t", 0) == (0, 0, 1000)
    assert offset(client, rig, "t", 1002) == (0, 4, 1002)
    assert offset(client, rig, "t", 1003) == (0, -1, -1)
    assert offset(client, rig, "t", -3) == (0, 4, 1002)

    wanted = made(DELETE_RECORDS, "DeleteRecordsTopic.DeleteRecordsPartition", partition_index=0, offset=3)
    topic = made(DELETE_RECORDS, "DeleteRecordsTopic", name="t", partitions=[wanted])
    answer = client.ask(DELETE_RECORDS, 2, topics=[topic], timeout_ms=1000)
    (result,) = answer.topics[0].partitions
    assert (result.error_code, result.low_watermark) == (0, 3)
    assert offset(client, rig, "t", -2) == (0, 3, -1)
    assert offset(client, rig, "t", 0) == (0, 3, 1001)
    assert offset(client, rig, "t", -3) == (0, 4, 1002)
    rig.append(partition, b"f", b"g")  # an older time than what is left of the batch that was cut into
    assert offset(client, rig, "t", -3) == (0, 4, 1002)
    rig.append(partition, *[b"h"] * 5)
    assert offset(client, rig, "t", -3) == (0, 11, 1004)

    (result,) = client.ask(LOG_DIRS, 4, topics=None).results
    (described,) = result.topics
    assert (described.name, described.partitions[0].partition_size) == ("t", partition.size_bytes)
    assert partition.size_bytes > 0


def test_where_epochs_end(rig, client):
    (partition,) = rig.topic("t", 1)
    rig.append(partition, b"a", b"b")
    generation = rig.broker.generation
    wanted = made(
        LEADER_EPOCH,
        "OffsetForLeaderTopic.OffsetForLeaderPartition",
        partition=0,
        current_leader_epoch=generation,
        leader_epoch=generation,
    )
    topic = made(LEADER_EPOCH, "OffsetForLeaderTopic", topic="t", partitions=[wanted])
    (result,) = client.ask(LEADER_EPOCH, 4, replica_id=-1, topics=[topic]).topics[0].partitions
    assert (result.error_code, result.leader_epoch, result.end_offset) == (0, generation, 2)


def test_producer_ids_differ(client):
    answers = [client.ask(PRODUCER_ID, 4, transactional_id=None, transaction_timeout_ms=1) for _ in range(3)]
    assert {a.error_code for a in answers} == {0}
    assert len({a.producer_id for a in answers}) == 3


def test_a_thousand_topics_in_one_request(rig, client):
    topics = [
        made(
            CREATE,
            "CreatableTopic",
            name=f"t{index:04}",
            num_partitions=1,
            replication_factor=1,
            assignments=[],
            configs=[],
        )
        for index in range(1000)
    ]
    answer = client.ask(CREATE, 7, topics=topics, timeout_ms=1000, validate_only=False)
    assert {t.error_code for t in answer.topics} == {0}
    everything = client.ask(
        METADATA, 12, topics=None, allow_auto_topic_creation=False, include_topic_authorized_operations=False
    )
    assert [t.name for t in everything.topics] == [t.name for t in topics]
    first = client.ask(
        DESCRIBE_PARTITIONS,
        0,
        topics=[],
        response_partition_limit=10,
        cursor=None,
    )
    assert len(first.topics) == 10
    assert first.next_cursor.topic_name == "t0010"
