"""Requests about partitions that lie in two shards of this process, and in two of another."""

from __future__ import annotations

from typing import Any

import pytest
from kafka_rig import RigClient
from shard_rig import HERE, ME, OTHER, ShardRig

from halfmoon.core.catalog.topics import Topic
from halfmoon.schema import control
from tests.core.bench import batch
from tests.kafka_messages import made

LIST_OFFSETS, DELETE_RECORDS, EPOCH_END, MOVE_DIRS, LOG_DIRS, REASSIGN, PRODUCERS = 2, 21, 23, 34, 35, 45, 61
NONE, OUT_OF_RANGE, UNKNOWN, NOT_LEADER, INVALID_TOPIC, OLD_EPOCH = 0, 1, 3, 6, 17, 74


@pytest.fixture
def rig() -> ShardRig:
    return ShardRig()


@pytest.fixture
def client(rig: ShardRig) -> RigClient:
    return RigClient(rig)  # type: ignore[arg-type]


@pytest.fixture
def topic(rig: ShardRig) -> Topic:
    """Partition i has i + 1 records, where it lies here."""
    topic = rig.topic("t")
    for index in here(rig, topic):
        append(rig, topic, index, index + 1)
    rig.turn()
    return topic


def here(rig: ShardRig, topic: Topic) -> list[int]:
    return [index for index in range(len(topic.partitions)) if rig.shard_of(topic, index) in HERE]


def append(rig: ShardRig, topic: Topic, index: int, count: int) -> None:
    partition = topic.partitions[index]
    rig.front.kernel_of(partition).append(partition, batch(*[b"v"] * count), 1_000)


def delete(
    client: RigClient, *topics: tuple[str, list[tuple[int, int]]]
) -> list[tuple[str, list[tuple[int, int, int]]]]:
    asked = [
        made(
            DELETE_RECORDS, "DeleteRecordsTopic", name=name,
            partitions=[
                made(DELETE_RECORDS, "DeleteRecordsTopic.DeleteRecordsPartition", partition_index=index, offset=offset)
                for index, offset in parts
            ],
        )
        for name, parts in topics
    ]  # fmt: skip
    answer = client.ask(DELETE_RECORDS, 2, topics=asked, timeout_ms=1_000)
    return [
        (each.name, [(part.partition_index, part.error_code, part.low_watermark) for part in each.partitions])
        for each in answer.topics
    ]


def test_records_are_deleted_in_the_shards_of_their_partitions(rig: ShardRig, client: RigClient, topic: Topic) -> None:
    rig.topic("u", 1)
    mine = here(rig, topic)
    assert {rig.shard_of(topic, index) for index in mine} == set(HERE)
    asked = [(index, 1) for index in reversed(range(8))]
    answer = delete(client, ("t", asked), ("nowhere", [(0, 0)]), ("u", []))
    assert answer == [
        ("t", [(index, NONE, 1) if index in mine else (index, NOT_LEADER, -1) for index, _ in asked]),
        ("nowhere", [(0, UNKNOWN, -1)]),
        ("u", []),
    ]
    assert [topic.partitions[index].start_offset for index in mine] == [1] * len(mine)
    assert [topic.partitions[index].start_offset for index in range(8) if index not in mine] == [0] * 4


def test_answers_come_in_the_order_of_the_request(rig: ShardRig, client: RigClient, topic: Topic) -> None:
    first, second = (next(each for each in here(rig, topic) if rig.shard_of(topic, each) == shard) for shard in HERE)
    asked = [(second, 99), (first, 0), (second, 0), (80, 0), (first, -1), (-1, 0)]
    assert delete(client, ("t", asked), ("t", [(first, 99)])) == [
        (
            "t",
            [
                (second, OUT_OF_RANGE, -1), (first, NONE, 0), (second, NONE, 0), (80, UNKNOWN, -1),
                (first, NONE, first + 1), (-1, UNKNOWN, -1),
            ],
        ),
        ("t", [(first, OUT_OF_RANGE, -1)]),
    ]  # fmt: skip


def test_the_answer_waits_for_all_of_the_logs(rig: ShardRig, client: RigClient, topic: Topic) -> None:
    mine = here(rig, topic)
    parts = [
        made(DELETE_RECORDS, "DeleteRecordsTopic.DeleteRecordsPartition", partition_index=index, offset=1)
        for index in mine
    ]
    topics = [made(DELETE_RECORDS, "DeleteRecordsTopic", name="t", partitions=parts)]
    client.feed(client.encode(DELETE_RECORDS, 2, topics=topics, timeout_ms=1_000))
    first, second = rig.nodes.values()
    for node in (first, second):
        rig.loop.run()
        assert client.answers() == []
        node.write()
        node.turn.flush()
        node.settle()
    rig.loop.run()
    assert len(client.answers()) == 1


def test_a_log_that_has_failed_fails_its_own_partitions(rig: ShardRig, client: RigClient, topic: Topic) -> None:
    rig.nodes[0].log.failed = OSError("no more")
    answers = dict(delete(client, ("t", [(index, 1) for index in here(rig, topic)])))["t"]
    assert {(rig.shard_of(topic, index), error) for index, error, _ in answers} == {(0, 56), (2, NONE)}


def test_producers_are_described_in_the_shards_of_their_partitions(
    rig: ShardRig, client: RigClient, topic: Topic
) -> None:
    for index in here(rig, topic):
        topic.partitions[index].transaction_ended(100 + index, 3, 0, 1, 1_000, committed=True)
    topics = [made(PRODUCERS, "TopicRequest", name="t", partition_indexes=[*reversed(range(8)), 9])]
    (found,) = client.ask(PRODUCERS, 0, topics=topics).topics
    assert [
        (part.partition_index, part.error_code, [each.producer_id for each in part.active_producers])
        for part in found.partitions
    ] == [
        *((index, NONE, [100 + index]) if index in here(rig, topic) else (index, NOT_LEADER, [])
          for index in reversed(range(8))),
        (9, UNKNOWN, []),
    ]  # fmt: skip


def test_offsets_are_listed_for_all_shards_of_the_process(rig: ShardRig, client: RigClient, topic: Topic) -> None:
    def ask(timestamp: int) -> dict[int, tuple[int, int, int]]:
        kind = "ListOffsetsTopic.ListOffsetsPartition"
        parts = [
            made(LIST_OFFSETS, kind, partition_index=index, timestamp=timestamp, current_leader_epoch=-1)
            for index in range(8)
        ]
        topics = [made(LIST_OFFSETS, "ListOffsetsTopic", name="t", partitions=parts)]
        client.feed(client.encode(LIST_OFFSETS, 7, replica_id=-1, isolation_level=0, topics=topics))
        rig.loop.run_threads()
        rig.turn()
        (answer,) = client.answers()
        return {
            part.partition_index: (part.error_code, part.offset, part.leader_epoch)
            for part in answer.topics[0].partitions
        }

    mine = here(rig, topic)
    elsewhere = {index: (NOT_LEADER, -1, -1) for index in range(8) if index not in mine}
    epochs = {index: rig.nodes[rig.shard_of(topic, index)].generation for index in mine}
    assert ask(-1) == elsewhere | {index: (NONE, index + 1, epochs[index]) for index in mine}
    assert ask(-2) == elsewhere | {index: (NONE, 0, epochs[index]) for index in mine}
    assert ask(0) == elsewhere | {index: (NONE, 0, epochs[index]) for index in mine}  # by their times


def test_epochs_end_in_the_shards_of_their_partitions(rig: ShardRig, client: RigClient, topic: Topic) -> None:
    def ask(epoch: int, current: int = -1) -> dict[int, tuple[int, int, int]]:
        kind = "OffsetForLeaderTopic.OffsetForLeaderPartition"
        parts = [
            made(EPOCH_END, kind, partition=index, leader_epoch=epoch, current_leader_epoch=current)
            for index in range(8)
        ]
        topics = [made(EPOCH_END, "OffsetForLeaderTopic", topic="t", partitions=parts)]
        answer = client.ask(EPOCH_END, 4, replica_id=-1, topics=topics)
        return {
            part.partition: (part.error_code, part.leader_epoch, part.end_offset)
            for part in answer.topics[0].partitions
        }

    mine = here(rig, topic)
    elsewhere = {index: (NOT_LEADER, -1, -1) for index in range(8) if index not in mine}
    epochs = {index: rig.nodes[rig.shard_of(topic, index)].generation for index in mine}
    (epoch,) = set(epochs.values())
    assert ask(epoch) == elsewhere | {index: (NONE, epoch, index + 1) for index in mine}
    assert ask(epoch, 0) == elsewhere | dict.fromkeys(mine, (OLD_EPOCH, -1, -1))


def sizes(client: RigClient, topics: Any) -> dict[str, dict[int, int]]:
    answer = client.ask(LOG_DIRS, 4, topics=topics)
    (found,) = answer.results
    assert found.error_code == NONE
    return {
        topic.name: {part.partition_index: part.partition_size for part in topic.partitions} for topic in found.topics
    }


def test_directories_show_what_lies_in_this_process(rig: ShardRig, client: RigClient, topic: Topic) -> None:
    expected = {index: topic.partitions[index].size_bytes for index in here(rig, topic)}
    assert all(expected.values())
    asked = made(LOG_DIRS, "DescribableLogDirTopic", topic="t", partitions=list(range(10)))
    assert sizes(client, [asked]) == {"t": expected}
    elsewhere = made(
        LOG_DIRS, "DescribableLogDirTopic", topic="t", partitions=[i for i in range(8) if i not in expected]
    )
    assert sizes(client, [elsewhere]) == {}
    assert sizes(client, []) == {}


def test_directories_show_the_shards_own_topics_as_one(rig: ShardRig, client: RigClient, topic: Topic) -> None:
    own = {}
    for number, node in rig.nodes.items():
        catalog = node.catalog
        node.append_control(
            control.TopicCreated(
                catalog.next_number(), "halfmoon.own", bytes([number] * 16), 1, {}, True, None, catalog.next_queue()
            )
        )
        partition = catalog.by_name["halfmoon.own"].partitions[0]
        node.append(partition, batch(*[b"v"] * (number + 1)), 1_000)
        own[number] = partition
    rig.turn()
    found = sizes(client, None)
    assert list(found) == sorted(found)
    assert found["halfmoon.own"] == {0: sum(each.size_bytes for each in own.values())}
    assert found["t"] == {index: topic.partitions[index].size_bytes for index in here(rig, topic)}


def test_partitions_stay_where_they_are(rig: ShardRig, client: RigClient, topic: Topic) -> None:
    directory = client.ask(LOG_DIRS, 4, topics=None).results[0].log_dir
    moved = made(
        MOVE_DIRS, "AlterReplicaLogDir", path=directory,
        topics=[made(MOVE_DIRS, "AlterReplicaLogDir.AlterReplicaLogDirTopic", name="t", partitions=list(range(8)))],
    )  # fmt: skip
    (answer,) = client.ask(MOVE_DIRS, 2, dirs=[moved]).results
    mine = here(rig, topic)
    assert {part.partition_index: part.error_code for part in answer.partitions} == {
        index: NONE if index in mine else 9 for index in range(8)
    }
    for node in (ME, OTHER):
        parts = [
            made(REASSIGN, "ReassignableTopic.ReassignablePartition", partition_index=index, replicas=[node.node_id])
            for index in range(8)
        ]
        topics = [made(REASSIGN, "ReassignableTopic", name="t", partitions=parts)]
        (answer,) = client.ask(REASSIGN, 0, timeout_ms=1, topics=topics).responses
        assert {part.partition_index: part.error_code for part in answer.partitions} == {
            index: NONE if (index in mine) == (node is ME) else 39 for index in range(8)
        }


def test_an_empty_request_has_an_empty_answer(client: RigClient) -> None:
    assert delete(client) == []
