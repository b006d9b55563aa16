"""Another node owns a partition: who asks this one for it is sent there."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Any

import pytest
from kafka_rig import Rig, batch
from test_api_00_produce import fields as producing
from test_api_00_produce import results
from test_api_01_fetch import fields, park, parts, wanted
from test_api_02_list_offsets import asking, only
from test_api_75_describe_topic_partitions import asking as describing

from halfmoon.adapters.kafka.metadata_bytes import head_bytes, topic_bytes
from halfmoon.adapters.kafka.protocol import CreateTopicsRequest
from halfmoon.core.catalog.owners import Leader, OtherNode
from halfmoon.core.catalog.topics import Partition, Topic
from halfmoon.errors import BrokerError, Fault, LeaseLostError

NOT_LEADER, NO_LEADER = 6, 5
NOT_ENOUGH_REPLICAS, INVALID_FACTOR, INVALID_ASSIGNMENT = 19, 38, 39
OTHER = OtherNode(9, ("other.example", 9_192), "broker-9", ("other.example", 10_912))


class Shared:
    """This node owns partitions with an even index."""

    has_replicas = False
    rack: str | None = None
    nobody = False
    """Nobody owns the others now."""

    def __init__(self, node_id: int) -> None:
        self.node_id = node_id
        self.here = lambda partition: partition.index % 2 == 0

    def owner_of(self, partition: Partition) -> int:
        return self.node_id if self.here(partition) else OTHER.node_id

    def epoch_of(self, partition: Partition) -> int:
        """Each partition has one of its own, as if it were in a log of its own."""
        return 10 + partition.index

    def leaders_of(self, topic: Topic) -> Sequence[Leader] | None:
        found = [Leader(self.owner_of(partition), self.epoch_of(partition)) for partition in topic.partitions]
        if self.nobody:
            return [each if each.node_id == self.node_id else Leader(-1, each.epoch) for each in found]
        return [each._replace(others=(OTHER.node_id,)) for each in found] if self.has_replicas else found

    def coordinator_of(self, name: str) -> OtherNode | None:
        if name == "nobody's":
            raise BrokerError(Fault.COORDINATOR_NOT_AVAILABLE, "not now")
        return OTHER if name.startswith("other") else None

    def others(self) -> Sequence[OtherNode]:
        return [OTHER]

    listed = others


@pytest.fixture
def rig() -> Rig:
    rig = Rig()
    rig.topic("t", 3)
    rig.broker.owners = Shared(rig.broker.node_id)
    return rig


def test_produce(rig: Rig) -> None:
    answer = rig.client().ask(0, 9, **producing(*[(index, batch(b"v")) for index in range(3)]))
    assert [row[:2] for row in results(answer)] == [(0, 0), (1, NOT_LEADER), (2, 0)]
    assert [partition.next_offset for partition in rig.broker.topic("t").partitions] == [1, 0, 1]


def leader(part: Any) -> tuple[int, int] | None:
    """The leader that a partition's result names, and its epoch."""
    found = part.current_leader
    return None if found is None else (found.leader_id, found.leader_epoch)


def endpoints(answer: Any) -> list[tuple[int, str, int, str | None]]:
    return [(node.node_id, node.host, node.port, node.rack) for node in answer.node_endpoints or ()]


@pytest.mark.parametrize("version", [9, 10, 12, 13])
def test_produce_says_who_leads(rig: Rig, version: int) -> None:
    topic = rig.broker.topic("t")
    asked = producing(*[(index, batch(b"v")) for index in range(3)], topic_id=uuid.UUID(bytes=topic.id))
    answer = rig.client().ask(0, version, **asked)
    (parts,) = [each.partition_responses for each in answer.responses]
    assert list(map(leader, parts)) == ([None, (9, 11), None] if version >= 10 else [None] * 3)
    assert endpoints(answer) == ([(9, "other.example", 9_192, None)] if version >= 10 else [])


@pytest.mark.parametrize("version", [11, 12, 15, 16, 17, 18])
def test_fetch_says_who_leads(rig: Rig, version: int) -> None:
    partitions = rig.broker.topic("t").partitions
    asked = fields(partitions[0], wanted(0), wanted(1), wanted(2))
    answer = rig.client().ask(1, version, **asked)
    assert list(map(leader, parts(answer))) == ([None, (9, 11), None] if version >= 16 else [None] * 3)
    assert endpoints(answer) == ([(9, "other.example", 9_192, None)] if version >= 16 else [])


@pytest.mark.parametrize(("epoch", "error"), [(-1, 0), (10, 0), (9, 74), (11, 75)])
def test_leader_epochs_are_the_partitions_own(rig: Rig, epoch: int, error: int) -> None:
    partitions = rig.broker.topic("t").partitions
    answer = rig.client().ask(1, 11, **fields(partitions[0], wanted(0, epoch=epoch)))
    assert parts(answer)[0].error_code == error
    asked = asking(-1, index=0, epoch=epoch)
    found = only(rig.client().ask(2, 7, replica_id=-1, isolation_level=0, topics=asked))
    assert (found.error_code, found.leader_epoch) == ((0, 10) if not error else (error, -1))


@pytest.mark.parametrize("version", range(7))
def test_find_coordinator(rig: Rig, version: int) -> None:
    def find(key: str) -> tuple[int, int, str, int]:
        named = {"coordinator_keys": [key]} if version >= 4 else {"key": key}
        answer = rig.client().ask(10, version, key_type=0, **named)
        found = answer.coordinators[0] if version >= 4 else answer
        return found.error_code, found.node_id, found.host, found.port

    error, node_id, host, port = find("mine")
    assert (error, node_id) == (0, rig.broker.node_id)
    assert (host, port) != ("other.example", 9_192)
    assert find("other's") == (0, 9, "other.example", 9_192)
    assert find("nobody's") == (15, -1, "", -1)


def test_describe_cluster_names_all_nodes(rig: Rig) -> None:
    answer = rig.client().ask(60, 1, include_cluster_authorized_operations=False, endpoint_type=1)
    assert [each.broker_id for each in answer.brokers] == [rig.broker.node_id, 9]
    assert (answer.brokers[1].host, answer.brokers[1].port) == ("other.example", 9_192)


def test_describe_topic_partitions_names_the_leaders(rig: Rig) -> None:
    answer = rig.client().ask(75, 0, **describing("t", limit=2))
    found = [(part.partition_index, part.leader_id, part.leader_epoch) for part in answer.topics[0].partitions]
    me = rig.broker.node_id
    assert found == [(0, me, 10), (1, 9, 11)]
    answer = rig.client().ask(75, 0, **describing("t", limit=2, cursor=("t", 2)))
    found = [(part.partition_index, part.leader_id, part.leader_epoch) for part in answer.topics[0].partitions]
    assert found == [(2, me, 12)]


def test_fetch(rig: Rig) -> None:
    partitions = rig.broker.topic("t").partitions
    answer = rig.client().ask(1, 11, **fields(partitions[0], wanted(0), wanted(1), max_wait_ms=1_000))
    assert [part.error_code for part in parts(answer)] == [0, NOT_LEADER]  # and it does not wait


def test_a_held_fetch_learns_that_its_partition_has_moved(rig: Rig) -> None:
    partitions = rig.broker.topic("t").partitions
    client = park(rig, partitions[0], wanted(0), max_wait_ms=1_000)
    client = client[0] if isinstance(client, tuple) else client
    rig.broker.owners.here = lambda partition: False
    rig.pass_time(1_000)
    rig.turn()
    (answer,) = client.answers()
    assert parts(answer)[0].error_code == NOT_LEADER


@pytest.mark.parametrize("timestamp", [-1, -2, 0])
def test_list_offsets(rig: Rig, timestamp: int) -> None:
    def code(index: int) -> int:
        asked = asking(timestamp, index=index)
        return int(only(rig.client().ask(2, 7, replica_id=-1, isolation_level=0, topics=asked)).error_code)

    assert [code(index) for index in range(3)] == [0, NOT_LEADER, 0]


@pytest.mark.parametrize("version", range(14))
def test_metadata_names_the_owner(rig: Rig, version: int) -> None:
    rest: dict[str, Any] = {"allow_auto_topic_creation": False}
    answer = rig.client().ask(3, version, topics=None if version else [], **rest)
    assert {(node.node_id, node.host, node.port) for node in answer.brokers} >= {(9, "other.example", 9_192)}
    assert len(answer.brokers) == 2
    me = rig.broker.node_id
    (topic,) = answer.topics
    found = [(p.partition_index, p.leader_id, p.replica_nodes, p.isr_nodes, p.error_code) for p in topic.partitions]
    assert found == [(0, me, [me], [me], 0), (1, 9, [9], [9], 0), (2, me, [me], [me], 0)]
    if version >= 7:
        assert [partition.leader_epoch for partition in topic.partitions] == [10, 11, 12]


@pytest.mark.parametrize("version", range(14))
def test_the_bytes_of_a_node_that_owns_all_are_the_remembered_ones(version: int) -> None:
    given = (version, "t", bytes(16), False, 3, 7, 2)
    assert topic_bytes(*given, leaders=[Leader(7, 2)] * 3) == topic_bytes(*given)
    assert head_bytes(version, 7, "h", 1, "c", []) == head_bytes(version, 7, "h", 1, "c")


def test_who_waits_for_a_log_that_another_node_writes_now_is_sent_there(rig: Rig) -> None:
    """The lease was lost while a commit was under way."""
    client = rig.client()
    client.feed(client.encode(0, 9, **producing((0, batch(b"v")))))
    rig.broker.write()
    job = rig.broker.log.sync_job()
    rig.broker.finish_sync(job, LeaseLostError("epoch 8 has it"))
    rig.loop.run()
    client.feed(client.encode(0, 9, **producing((0, batch(b"later")))))
    assert [results(answer)[0][1] for answer in client.answers()] == [NOT_LEADER, NOT_LEADER]


@pytest.mark.parametrize("version", range(14))
def test_metadata_says_that_nobody_leads_a_partition_now(rig: Rig, version: int) -> None:
    rig.broker.owners.nobody = True
    answer = rig.client().ask(3, version, topics=None if version else [], allow_auto_topic_creation=False)
    me = rig.broker.node_id
    found = [(p.error_code, p.leader_id, p.replica_nodes, p.isr_nodes) for p in answer.topics[0].partitions]
    assert found == [(0, me, [me], [me]), (NO_LEADER, -1, [], []), (0, me, [me], [me])]
    answer = rig.client().ask(75, 0, **describing("t", limit=3))
    assert [(p.error_code, p.leader_id, p.replica_nodes) for p in answer.topics[0].partitions] == [
        (0, me, [me]), (NO_LEADER, -1, []), (0, me, [me])
    ]  # fmt: skip


@pytest.mark.parametrize("version", range(14))
def test_metadata_names_further_replicas(rig: Rig, version: int) -> None:
    rig.broker.owners.has_replicas = True
    answer = rig.client().ask(3, version, topics=None if version else [], allow_auto_topic_creation=False)
    me, other = rig.broker.node_id, OTHER.node_id
    found = [(p.leader_id, p.replica_nodes, p.isr_nodes) for p in answer.topics[0].partitions]
    assert found[::2] == [(me, [me, other], [me, other])] * 2
    answer = rig.client().ask(75, 0, **describing("t", limit=1))
    assert [p.replica_nodes for p in answer.topics[0].partitions] == [[me, other]]


def test_where_there_are_replicas_any_number_of_them_is_in_sync(rig: Rig) -> None:
    topic = rig.broker.topic("t")
    rig.broker.administration.alter_configs(topic, {"min.insync.replicas": "2"})

    def produced() -> list[int]:
        answer = rig.client().ask(0, 9, **producing((0, batch(b"v")), acks=-1))
        return [row[1] for row in results(answer)]

    assert produced() == [NOT_ENOUGH_REPLICAS]
    rig.broker.owners.has_replicas = True
    assert produced() == [0]


@pytest.mark.parametrize(
    ("factor", "assigned", "error", "told"),
    [(3, [], 0, 3), (-1, [], 0, 1), (0, [], INVALID_FACTOR, -1), (-2, [], INVALID_FACTOR, -1),
     (-1, [[1, 2], [2, 3]], 0, 2), (-1, [[1, 2], [2]], INVALID_ASSIGNMENT, -1), (-1, [[1, 1]], INVALID_ASSIGNMENT, -1)],
)  # fmt: skip
def test_where_there_are_replicas_topics_are_made_with_any_number_of_them(
    rig: Rig, factor: int, assigned: list[list[int]], error: int, told: int
) -> None:
    rig.broker.owners.has_replicas = True
    kind = CreateTopicsRequest.CreatableTopic
    given = [
        kind.CreatableReplicaAssignment(partition_index=index, broker_ids=ids) for index, ids in enumerate(assigned)
    ]
    topic = kind(
        name="new", num_partitions=-1 if assigned else 1, replication_factor=factor, assignments=given, configs=[]
    )
    (found,) = rig.client().ask(19, 5, topics=[topic], timeout_ms=1_000, validate_only=False).topics
    assert (found.error_code, found.replication_factor) == (error, told)
