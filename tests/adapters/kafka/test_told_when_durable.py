"""What clients are told of the broker's state is durable (docs/decisions/0131).

A request that is repeated, since its first answer was lost, finds that there is nothing to be done. If that were said
at once, a power loss could undo what the client has been told. The same is true of who looks how something is.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
from kafka_rig import Rig, RigClient, batch

from halfmoon.adapters.kafka.api import registered
from halfmoon.adapters.kafka.protocol import REQUESTS
from halfmoon.services.credentials.users import Upsertion
from tests.kafka_messages import as_dict

STORAGE_ERROR, COORDINATOR_NOT_AVAILABLE = 56, 15
Fields = Callable[[Any], dict[str, Any]]


def topics(kind: str, part: str, name: str = "name", of: str = "t", **values: Any) -> Fields:
    """A request about partition 0 of topics with names of one letter."""

    def fields(request: Any) -> dict[str, Any]:
        topic = getattr(request, kind)
        parts = [getattr(topic, part)(partition_index=0, **values)]
        return {"topics": [topic(**{name: each, "partitions": parts}) for each in of]}

    return fields


def create(*names: str) -> Fields:
    return lambda request: {
        "topics": [request.CreatableTopic(name=name, num_partitions=1, replication_factor=1) for name in names]
    }


def alter_configs(request: Any) -> dict[str, Any]:
    kind = request.AlterConfigsResource
    config = kind.AlterableConfig(name="retention.ms", value="1000")
    return {"resources": [kind(resource_type=2, resource_name="t", configs=[config])]}


def one(into: str, kind: str, **values: Any) -> Fields:
    def fields(request: Any) -> dict[str, Any]:
        return {into: [getattr(request, kind)(**values)]}

    return fields


def quotas(request: Any) -> dict[str, Any]:
    kind = request.EntryData
    entity = kind.EntityData(entity_type="client-id", entity_name="c")
    return {"entries": [kind(entity=[entity], ops=[kind.OpData(key="producer_byte_rate", value=5.0)])]}


CREATE_ACL = one(
    "creations", "AclCreation",
    resource_type=2, resource_name="t", principal="User:a", host="*", operation=3, permission_type=3,
)  # fmt: skip
DELETE_ACLS = one(
    "filters", "DeleteAclsFilter",
    resource_type_filter=2, resource_name_filter="t", principal_filter=None, host_filter=None, operation=1,
    permission_type=1,
)  # fmt: skip
SET_CREDENTIAL = one(
    "upsertions", "ScramCredentialUpsertion", name="a", mechanism=1, iterations=4096, salt=b"s", salted_password=b"p"
)
DELETE_CREDENTIAL = one("deletions", "ScramCredentialDeletion", name="a", mechanism=1)


class Change(NamedTuple):
    """A request that changes something, and nothing more when it is repeated."""

    key: int
    version: int
    fields: Fields
    again: int = 0
    """The code with which the repeated request is told so."""


CHANGES = [
    Change(19, 7, create("new"), 36),
    Change(20, 6, lambda request: {"topics": [request.DeleteTopicState(name="u")]}, 3),
    Change(20, 4, lambda request: {"topic_names": ["u"]}, 3),
    Change(21, 2, topics("DeleteRecordsTopic", "DeleteRecordsPartition", offset=1)),
    Change(30, 3, CREATE_ACL),
    Change(31, 3, DELETE_ACLS),
    Change(33, 2, alter_configs),
    Change(37, 3, lambda request: {"topics": [request.CreatePartitionsTopic(name="t", count=2, assignments=None)]}, 37),
    Change(42, 2, lambda request: {"groups_names": ["g"]}, 69),
    Change(
        47, 0,
        lambda request: {
            "group_id": "g", **topics("OffsetDeleteRequestTopic", "OffsetDeleteRequestPartition")(request)
        },
        69,  # it had nothing else
    ),
    Change(44, 1, alter_configs),
    Change(49, 1, quotas),
    Change(51, 0, lambda request: {**SET_CREDENTIAL(request), "deletions": []}),
    Change(51, 0, lambda request: {**DELETE_CREDENTIAL(request), "upsertions": []}, 91),
    Change(
        91, 0,
        lambda request: {
            "group_id": "s",
            **topics("AlterShareGroupOffsetsRequestTopic", "AlterShareGroupOffsetsRequestPartition", name="topic_name",
                     start_offset=0)(request),
        },
    ),
    Change(
        92, 0,
        lambda request: {"group_id": "s", "topics": [request.DeleteShareGroupOffsetsRequestTopic(topic_name="t")]},
    ),
]  # fmt: skip


def describe_share_offsets(request: Any) -> dict[str, Any]:
    return {"groups": [request.DescribeShareGroupOffsetsRequestGroup(group_id="s", topics=None)]}


def describe_configs(request: Any) -> dict[str, Any]:
    kind = request.DescribeConfigsResource
    return {"resources": [kind(resource_type=2, resource_name="t", configuration_keys=None)]}


def offset_fetch(request: Any) -> dict[str, Any]:
    return {"groups": [request.OffsetFetchRequestGroup(group_id="g", topics=None)]}


READS: dict[int, tuple[int, Fields]] = {
    9: (8, offset_fetch),
    15: (6, lambda request: {"groups": ["g"]}),
    16: (5, lambda request: {}),
    29: (3, lambda request: {
        "resource_type_filter": 1, "resource_name_filter": None, "principal_filter": None, "host_filter": None,
        "operation": 1, "permission_type": 1,
    }),
    32: (4, describe_configs),
    48: (1, lambda request: {}),
    50: (0, lambda request: {"users": None}),
    61: (0, lambda request: {"topics": [request.TopicRequest(name="t", partition_indexes=[0])]}),
    65: (0, lambda request: {"transactional_ids": ["x"]}),
    66: (2, lambda request: {}),
    69: (1, lambda request: {"group_ids": ["g"]}),
    74: (1, lambda request: {}),
    77: (1, lambda request: {"group_ids": ["s"]}),
    90: (1, describe_share_offsets),
}  # fmt: skip

NOTHING_KEPT = {17, 18, 34, 35, 36, 38, 39, 40, 41, 43, 45, 46, 55, 57, 60, 71, 72}
"""They tell nothing that the log remembers."""
WAITS_ITSELF = {0, 8, 11, 14, 22, 24, 25, 26, 27, 28, 68, 76, 78, 79, 18503, 18504, 18506, 18508}
"""They wait for what they have written, or what their answer rests on."""
TO_THE_RECORDS = {1, 2, 3, 10, 12, 13, 23, 75, 18502}
"""They lead to records and members. What a client does with that is asked of the same log, behind it: see 0131."""


def test_every_api_is_one_or_the_other() -> None:
    tells = {change.key for change in CHANGES} | READS.keys()
    assert sorted([*tells, *NOTHING_KEPT, *WAITS_ITSELF, *TO_THE_RECORDS]) == sorted(registered())


class World:
    """Topics, a rule, a group with progress and a share group, all of it durable."""

    def __init__(self) -> None:
        self.rig = Rig()
        self.client: RigClient = self.rig.client()
        for name in "tu":
            (partition,) = self.rig.topic(name)
            self.rig.append(partition, b"a", b"b")
        commit = topics("OffsetCommitRequestTopic", "OffsetCommitRequestPartition", committed_offset=1)
        self.ask(8, 9, lambda request: {
            "group_id": "g", "generation_id_or_member_epoch": -1, "member_id": "", **commit(request)
        })  # fmt: skip
        self.ask(*next(change for change in CHANGES if change.key == 91)[:3])
        self.rig.broker.users.alter([], [Upsertion("a", 1, 8192, b"s", b"p")])
        self.ask(30, 3, lambda request: {"creations": [request.AclCreation(
            resource_type=2, resource_name="t", principal="User:b", host="*", operation=3, permission_type=3
        )]})  # fmt: skip

    def send(self, key: int, version: int, fields: Fields) -> None:
        """Have a request handled, and its changes written; nothing is synced."""
        self.client.feed(self.client.encode(key, version, **fields(REQUESTS[key])))
        self.rig.broker.write()
        self.rig.broker.settle()
        self.rig.loop.run()

    def ask(self, key: int, version: int, fields: Fields) -> Any:
        self.send(key, version, fields)
        self.rig.turn()
        (answer,) = self.client.answers()
        return answer

    def fail_to_sync(self) -> None:
        job = self.rig.broker.log.sync_job()
        assert job is not None
        self.rig.broker.turn.finish_sync(job, OSError(errno.EIO, "the disk broke"))
        self.rig.loop.run()


def first_code(answer: Any) -> int:
    """The first code that is not 0, of an answer about one thing."""

    def codes(value: Any) -> list[int]:
        if isinstance(value, dict):
            return [
                code
                for name, each in value.items()
                for code in ([each] if name == "error_code" else codes(each))
            ]  # fmt: skip
        return [code for each in value for code in codes(each)] if isinstance(value, list) else []

    return next((code for code in codes(as_dict(answer)) if code), 0)


BY_KEY = pytest.mark.parametrize(
    "change", CHANGES, ids=[f"{registered()[each.key].name}-v{each.version}" for each in CHANGES]
)
READ = pytest.mark.parametrize("key", READS, ids=[registered()[key].name for key in READS])


@BY_KEY
def test_what_is_so_already_is_told_once_that_is_durable(change: Change) -> None:
    world = World()
    world.send(*change[:3])
    world.send(*change[:3])
    assert world.client.answers() == []
    world.rig.turn()
    first, again = world.client.answers()
    assert (first_code(first), first_code(again)) == (0, change.again)


@BY_KEY
def test_what_a_failed_disk_may_have_lost_is_not_told(change: Change) -> None:
    world = World()
    world.send(*change[:3])
    world.send(*change[:3])
    world.fail_to_sync()
    world.send(*change[:3])  # as clients do after such an error
    lost = {COORDINATOR_NOT_AVAILABLE if change.key in (42, 47) else STORAGE_ERROR}
    answers = world.client.answers()
    assert len(answers) == 3
    assert {first_code(answer) for answer in answers} == lost


def test_that_there_is_no_progress_to_be_deleted_too() -> None:
    world = World()
    commit = topics("OffsetCommitRequestTopic", "OffsetCommitRequestPartition", of="tu", committed_offset=1)
    delete = topics("OffsetDeleteRequestTopic", "OffsetDeleteRequestPartition")
    world.ask(8, 9, lambda request: {
        "group_id": "g", "generation_id_or_member_epoch": -1, "member_id": "",
        **commit(request),
    })  # fmt: skip
    for _ in range(2):
        world.send(47, 0, lambda request: {"group_id": "g", **delete(request)})
    assert world.client.answers() == []
    world.rig.turn()
    assert [first_code(answer) for answer in world.client.answers()] == [0, 0]
    world.send(47, 0, lambda request: {"group_id": "g", **delete(request)})
    assert [first_code(answer) for answer in world.client.answers()] == [0]


def test_what_was_wrong_with_a_request_is_told_whatever_the_disk_does() -> None:
    world = World()
    world.send(19, 7, create("new", "a b"))
    world.fail_to_sync()
    (answer,) = world.client.answers()
    assert [topic.error_code for topic in answer.topics] == [STORAGE_ERROR, 17]


@READ
def test_how_things_are_is_told_once_that_is_durable(key: int) -> None:
    world = World()
    world.rig.broker.create_topic("another")
    world.send(key, *READS[key])
    assert world.client.answers() == []
    world.rig.turn()
    assert len(world.client.answers()) == 1


@READ
def test_how_things_are_is_told_at_once_where_all_of_it_is_durable(key: int) -> None:
    """Produced records do not delay it, nor does a disk that has failed to keep some."""
    world = World()
    partition = world.rig.broker.topic("t").partitions[0]
    world.rig.broker.append(partition, memoryview(bytearray(batch(b"c"))), world.rig.clock.now_ms)
    world.send(key, *READS[key])
    assert len(world.client.answers()) == 1
    world.fail_to_sync()
    world.send(key, *READS[key])
    assert len(world.client.answers()) == 1


@READ
def test_how_things_were_before_a_disk_failed_is_not_told(key: int) -> None:
    world = World()
    world.rig.broker.create_topic("another")
    world.send(key, *READS[key])
    world.fail_to_sync()
    assert world.client.answers() == []
    assert world.client.transport.closed


def test_metadata_leads_to_records_also_after_the_disk_has_failed() -> None:
    world = World()
    world.rig.broker.create_topic("another")
    world.rig.broker.write()
    world.fail_to_sync()
    world.send(3, 12, lambda request: {"topics": [request.MetadataRequestTopic(topic_id=None, name="t")]})
    (answer,) = world.client.answers()
    assert [(topic.name, topic.error_code) for topic in answer.topics] == [("t", 0)]


class TestEndsOfTransactions:
    """EndTxn that is repeated, and one that is refused since the transaction has ended otherwise."""

    def world(self) -> tuple[World, Fields]:
        world = World()
        made = world.ask(22, 4, lambda request: {"transactional_id": "x", "transaction_timeout_ms": 1000})
        known = {"transactional_id": "x", "producer_id": made.producer_id, "producer_epoch": made.producer_epoch}
        world.ask(25, 3, lambda request: known | {"group_id": "g"})

        def end(request: Any) -> dict[str, Any]:
            return known | {"committed": True}

        return world, end

    def test_that_it_has_ended_so_is_told_once_that_is_durable(self) -> None:
        world, end = self.world()
        world.send(26, 3, end)
        world.send(26, 3, end)
        assert world.client.answers() == []
        world.rig.turn()
        assert [answer.error_code for answer in world.client.answers()] == [0, 0]

    def test_that_it_has_ended_otherwise_too(self) -> None:
        world, end = self.world()
        world.send(26, 3, end)
        world.send(26, 3, lambda request: end(request) | {"committed": False})
        assert world.client.answers() == []
        world.fail_to_sync()
        assert [answer.error_code for answer in world.client.answers()] == [COORDINATOR_NOT_AVAILABLE] * 2

    def test_progress_counts_for_readers_once_the_end_is_durable(self) -> None:
        world, end = self.world()
        known = end(None)
        commit = topics("TxnOffsetCommitRequestTopic", "TxnOffsetCommitRequestPartition", committed_offset=2)
        world.ask(28, 3, lambda request: {
            "transactional_id": "x", "producer_id": known["producer_id"], "producer_epoch": known["producer_epoch"],
            "group_id": "g", "generation_id": -1, "member_id": "", **commit(request)
        })  # fmt: skip
        world.send(26, 3, end)
        world.send(9, *READS[9])
        assert world.client.answers() == []
        world.rig.turn()
        _, fetched = world.client.answers()
        assert fetched.groups[0].topics[0].partitions[0].committed_offset == 2
