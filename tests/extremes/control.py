"""Extremes of all that is not Produce or Fetch: administration, groups, offsets, transactions, share groups. Such a
request has 4 MiB at most."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import count
from typing import Any

from halfmoon.kafka_wire.messages import REQUESTS, Part
from tests.extremes.records import FULL_BYTES, produce_request, records, small
from tests.extremes.registry import extreme, several
from tests.extremes.world import PATIENCE_S, Steps, World, produced
from tests.services.transactions.transaction_bench import transactional_batch

WIDE = 10_000
"""`limits.max_partitions_per_topic`."""
WAIT_MS = 60_000


def part(key: int, name: str, /, **fields: Any) -> Any:
    """A struct of a request."""
    return Part(REQUESTS[key], name)(**fields)


def no_errors(found: Any) -> None:
    errors = {each.error_code for each in found}
    assert errors <= {0}, errors


def names(number: int, first: int = 0, stem: str = "t") -> list[str]:
    return [f"{stem}{index}" for index in range(first, first + number)]


def make_topics(world: World, number: int, partitions: int = 1, stem: str = "t") -> None:
    for first in range(0, number, 500):
        world.topics(dict.fromkeys(names(min(500, number - first), first, stem), partitions))


# -- topics ------------------------------------------------------------------------------------------------------------


def creatable(name: str, partitions: int) -> Any:
    return part(
        19, "CreatableTopic", name=name, num_partitions=partitions, replication_factor=1, assignments=[], configs=[]
    )


@several("Topics", {
    "many": ("CreateTopics: 5,000 topics", (5_000, 1)), "wide": ("CreateTopics: one of 10,000 partitions", (1, WIDE)),
    "wides": ("CreateTopics: 5 of 10,000 partitions", (5, WIDE)),
})  # fmt: skip
def create_topics(world: World, number: int, partitions: int) -> Steps:
    yield
    for run in count():
        made = [creatable(f"{run}-{index}", partitions) for index in range(number)]
        no_errors(world.ask(19, 5, topics=made, timeout_ms=WAIT_MS, validate_only=False).topics)
        yield
        for first in range(0, number, 100):
            topics = [f"{run}-{index}" for index in range(first, min(first + 100, number))]
            no_errors(world.ask(20, 4, topic_names=topics, timeout_ms=WAIT_MS).responses)
        world.forget()


@several("Topics", {
    "many": ("DeleteTopics: 2,000 topics", (2_000, 1)), "wide": ("DeleteTopics: one of 10,000 partitions", (1, WIDE)),
})  # fmt: skip
def delete_topics(world: World, number: int, partitions: int) -> Steps:
    yield
    for run in count():
        made = names(number, stem=f"{run}-")
        make_topics(world, number, partitions, f"{run}-")
        for first in range(0, partitions, 1_000):
            parts = {made[0]: [(index, small()) for index in range(first, min(first + 1_000, partitions))]}
            assert world.produce(parts) == {0}
        world.forget()
        no_errors(world.ask(20, 4, topic_names=made, timeout_ms=WAIT_MS).responses)
        yield


@extreme("Topics", "CreatePartitions: from 1 to 10,000")
def create_partitions(world: World) -> Steps:
    yield
    for run in count():
        world.topic(f"t{run}")
        world.forget()
        wanted = [part(37, "CreatePartitionsTopic", name=f"t{run}", count=WIDE, assignments=None)]
        no_errors(world.ask(37, 1, topics=wanted, timeout_ms=WAIT_MS, validate_only=False).results)
        yield


def wide_broker(world: World) -> None:
    """100,000 partitions."""
    for index in range(10):
        world.topic(f"wide{index}", WIDE)


@extreme("Topics", "Metadata of 100,000 partitions")
def metadata_wide(world: World) -> Steps:
    wide_broker(world)
    yield
    while True:
        assert len(world.ask(3, 9, topics=None, allow_auto_topic_creation=False).topics) >= 10
        yield


@extreme("Topics", "Metadata of 5,000 topics")
def metadata_many(world: World) -> Steps:
    make_topics(world, 5_000)
    yield
    while True:
        assert len(world.ask(3, 9, topics=None, allow_auto_topic_creation=False).topics) >= 5_000
        yield


@extreme("Topics", "Metadata that creates 2,000 topics")
def metadata_creates(world: World) -> Steps:
    yield
    for run in count():
        topics = [part(3, "MetadataRequestTopic", name=name) for name in names(2_000, stem=f"{run}-")]
        world.ask(3, 9, topics=topics, allow_auto_topic_creation=True)
        yield


@extreme("Topics", "DescribeTopicPartitions of 100,000 partitions")
def describe_partitions(world: World) -> Steps:
    wide_broker(world)
    wanted = [part(75, "TopicRequest", name=f"wide{index}") for index in range(10)]
    yield
    while True:
        world.ask(75, 0, topics=wanted, response_partition_limit=2_000_000, cursor=None)
        yield


@extreme("Topics", "DescribeLogDirs of 100,000 partitions")
def describe_log_dirs(world: World) -> Steps:
    wide_broker(world)
    yield
    while True:
        world.ask(35, 1, topics=None)
        yield


@extreme("Topics", "OffsetForLeaderEpoch of 40,000 partitions")
def leader_epochs(world: World) -> Steps:
    wide_broker(world)
    wanted = [
        part(23, "OffsetForLeaderTopic", topic=f"wide{topic}", partitions=[
            part(23, "OffsetForLeaderPartition", partition=index, current_leader_epoch=-1, leader_epoch=0)
            for index in range(WIDE)
        ])
        for topic in range(4)
    ]  # fmt: skip
    yield
    while True:
        world.ask(23, 3, replica_id=-1, topics=wanted)
        yield


@extreme("Topics", "DeleteRecords of 10,000 partitions")
def delete_records(world: World) -> Steps:
    world.topic("wide", WIDE)
    for first in range(0, WIDE, 1_000):
        world.produce({"wide": [(index, small()) for index in range(first, first + 1_000)]})
    yield
    while True:
        for first in range(0, WIDE, 1_000):
            world.produce({"wide": [(index, small()) for index in range(first, first + 1_000)]})
        world.forget()
        parts = [part(21, "DeleteRecordsPartition", partition_index=index, offset=-1) for index in range(WIDE)]
        wanted = [part(21, "DeleteRecordsTopic", name="wide", partitions=parts)]
        no_errors(world.ask(21, 1, topics=wanted, timeout_ms=WAIT_MS).topics[0].partitions)
        yield


@extreme("Topics", "DescribeProducers of 10,000 partitions")
def describe_producers(world: World) -> Steps:
    world.topic("wide", WIDE)
    yield
    while True:
        world.ask(61, 0, topics=[part(61, "TopicRequest", name="wide", partition_indexes=list(range(WIDE)))])
        yield


# -- configurations, access, quotas ------------------------------------------------------------------------------------


@extreme("Configurations", "DescribeConfigs of 5,000 topics")
def describe_configs(world: World) -> Steps:
    make_topics(world, 5_000)
    wanted = [
        part(32, "DescribeConfigsResource", resource_type=2, resource_name=name, configuration_keys=None)
        for name in names(5_000)
    ]
    yield
    while True:
        world.ask(32, 3, resources=wanted, include_synonyms=True, include_documentation=True)
        yield


@extreme("Configurations", "IncrementalAlterConfigs of 5,000 topics")
def alter_configs(world: World) -> Steps:
    make_topics(world, 5_000)
    yield
    for run in count():
        config = part(44, "AlterableConfig", name="retention.ms", config_operation=0, value=f"{1_000_000_000 + run}")
        wanted = [
            part(44, "AlterConfigsResource", resource_type=2, resource_name=name, configs=[config])
            for name in names(5_000)
        ]
        no_errors(world.ask(44, 0, resources=wanted, validate_only=False).responses)
        yield


@extreme("Configurations", "10,000 ACLs are created, described and deleted")
def acls(world: World) -> Steps:
    any_acl = {
        "pattern_type_filter": 1,
        "principal_filter": None,
        "host_filter": None,
        "operation": 1,
        "permission_type": 1,
    }
    everything = {"resource_type_filter": 1, "resource_name_filter": None, **any_acl}
    made = [
        part(30, "AclCreation", resource_type=2, resource_name=f"t{index}", resource_pattern_type=3, principal="User:a",
             host="*", operation=3, permission_type=3)
        for index in range(10_000)
    ]  # fmt: skip
    yield
    while True:
        no_errors(world.ask(30, 1, creations=made).results)
        world.ask(29, 1, **everything)
        world.ask(31, 1, filters=[part(31, "DeleteAclsFilter", **everything)])
        yield


@extreme("Configurations", "quotas for 10,000 users")
def quotas(world: World) -> Steps:
    yield
    for run in count():
        entries = [
            part(49, "EntryData", entity=[part(49, "EntityData", entity_type="client-id", entity_name=f"c{index}")],
                 ops=[part(49, "OpData", key="producer_byte_rate", value=1e9 + run, remove=False)])
            for index in range(10_000)
        ]  # fmt: skip
        no_errors(world.ask(49, 1, entries=entries, validate_only=False).entries)
        yield


# -- groups and offsets ------------------------------------------------------------------------------------------------


def commit(group: str, topics: list[tuple[str, range]], offset: int) -> dict[str, Any]:
    return {
        "group_id": group, "generation_id_or_member_epoch": -1, "member_id": "", "retention_time_ms": -1,
        "topics": [
            part(8, "OffsetCommitRequestTopic", name=name, partitions=[
                part(8, "OffsetCommitRequestPartition", partition_index=index, committed_offset=offset,
                     committed_leader_epoch=-1, committed_metadata="")
                for index in indexes
            ])
            for name, indexes in topics
        ],
    }  # fmt: skip


@extreme("Groups", "OffsetCommit of 40,000 partitions, and OffsetFetch")
def offsets(world: World) -> Steps:
    wide_broker(world)
    yield
    for run in count():
        said = commit("g", [(f"wide{index}", range(WIDE)) for index in range(4)], run)
        for topic in world.ask(8, 6, **said).topics:
            no_errors(topic.partitions)
        world.ask(9, 6, group_id="g", topics=None)
        yield


@extreme("Groups", "10,000 groups with an offset: ListGroups, DescribeGroups, OffsetFetch")
def many_groups(world: World) -> Steps:
    world.topic("t")
    groups = names(10_000, stem="g")
    for first in range(0, 10_000, 500):
        for group in groups[first : first + 500]:
            world.admin.send(world.admin.request(8, 6, **commit(group, [("t", range(1))], 0)))
        for _ in range(500):
            world.admin.frame(PATIENCE_S)
    wanted = [part(9, "OffsetFetchRequestGroup", group_id=group, topics=None) for group in groups]
    yield
    while True:
        assert len(world.ask(16, 3).groups) == 10_000
        world.ask(15, 4, groups=groups, include_authorized_operations=False)
        world.ask(9, 8, groups=wanted, require_stable=False)
        yield


@extreme(
    "Groups", "1,000 members of one group join, each with 2 KB of metadata", groups={"initial_rebalance_delay": "3s"}
)
def many_members(world: World) -> Steps:
    peers = [world.peer() for _ in range(1_000)]
    protocols = [part(11, "JoinGroupRequestProtocol", name="range", metadata=b"m" * 2_000)]

    def join(peer: Any, group: str, member: str) -> None:
        peer.send(peer.request(
            11, 5, group_id=group, session_timeout_ms=600_000, rebalance_timeout_ms=600_000, member_id=member,
            group_instance_id=None, protocol_type="consumer", protocols=protocols,
        ))  # fmt: skip

    yield
    for run in count():
        group = f"g{run}"
        for peer in peers:
            join(peer, group, "")
        members = [peer.answer(11, 5, PATIENCE_S).member_id for peer in peers]
        for peer, member in zip(peers, members, strict=True):
            join(peer, group, member)
        answers = [peer.answer(11, 5, PATIENCE_S) for peer in peers]
        newest = max(answer.generation_id for answer in answers)
        assert newest >= 1
        yield


@extreme("Groups", "300 members of a KIP-848 group read 10,000 partitions")
def new_members(world: World) -> Steps:
    world.topic("wide", WIDE)
    yield
    for run in count():
        for member in range(300):
            world.admin.send(world.admin.request(
                68, 0, group_id=f"g{run}", member_id=f"m{member}", member_epoch=0, instance_id=None, rack_id=None,
                rebalance_timeout_ms=60_000, subscribed_topic_names=["wide"], server_assignor=None, topic_partitions=[],
            ))  # fmt: skip
        for _ in range(300):
            world.admin.frame(PATIENCE_S)
        yield


# -- transactions ------------------------------------------------------------------------------------------------------


@extreme("Transactions", "one transaction in 10,000 partitions: added, committed")
def transaction(world: World) -> Steps:
    world.topic("wide", WIDE)
    yield
    while True:
        who = producer(world)
        add(world, who, {"wide": range(WIDE)})
        end(world, who, commits=True)
        yield


@several("Transactions", {
    "commit": ("one transaction that has written to 10,000 partitions is committed", (True,)),
    "abort": ("one transaction that has written to 10,000 partitions is aborted", (False,)),
})  # fmt: skip
def markers(world: World, commits: bool) -> Steps:
    world.topic("wide", WIDE)
    yield
    while True:
        who = producer(world)
        add(world, who, {"wide": range(WIDE)})
        batch = bytes(transactional_batch(b"x", producer_id=who[0], epoch=who[1], sequence=0))
        for first in range(0, WIDE, 1_000):
            parts = {"wide": [(index, batch) for index in range(first, first + 1_000)]}
            world.admin.send(produce_request(parts, -1, "tx"))
            assert produced(world.admin.frame(PATIENCE_S)) == {0}
        world.forget()
        end(world, who, commits=commits)
        yield


@several("Transactions", {
    "commit": ("one transaction commits the offsets of 40,000 partitions", (True,)),
    "abort": ("one transaction with the offsets of 40,000 partitions is aborted", (False,)),
})  # fmt: skip
def offsets_in_transaction(world: World, commits: bool) -> Steps:
    wide_broker(world)
    yield
    for run in count():
        who = producer(world)
        names = {"transactional_id": "tx", "group_id": "g", "producer_id": who[0], "producer_epoch": who[1]}
        assert world.ask(25, 3, **names).error_code == 0
        topics = [
            part(28, "TxnOffsetCommitRequestTopic", name=f"wide{topic}", partitions=[
                part(28, "TxnOffsetCommitRequestPartition", partition_index=index, committed_offset=run,
                     committed_leader_epoch=-1, committed_metadata="")
                for index in range(WIDE)
            ])
            for topic in range(4)
        ]  # fmt: skip
        said = {**names, "generation_id": -1, "member_id": "", "group_instance_id": None, "topics": topics}
        for topic in world.ask(28, 3, **said).topics:
            no_errors(topic.partitions)
        world.forget()
        end(world, who, commits=commits)
        yield


def producer(world: World) -> tuple[int, int]:
    began = world.ask(22, 2, transactional_id="tx", transaction_timeout_ms=60_000, producer_id=-1, producer_epoch=-1)
    assert began.error_code == 0
    return began.producer_id, began.producer_epoch


def add(world: World, who: tuple[int, int], wanted: Mapping[str, Sequence[int]]) -> None:
    topics = [part(24, "AddPartitionsToTxnTopic", name=name, partitions=list(each)) for name, each in wanted.items()]
    added = world.ask(
        24, 1, v3_and_below_transactional_id="tx", v3_and_below_producer_id=who[0], v3_and_below_producer_epoch=who[1],
        v3_and_below_topics=topics,
    )  # fmt: skip
    for topic in added.results_by_topic_v3_and_below:
        assert {each.partition_error_code for each in topic.results_by_partition} == {0}


def end(world: World, who: tuple[int, int], *, commits: bool) -> None:
    said = {"transactional_id": "tx", "committed": commits, "producer_id": who[0], "producer_epoch": who[1]}
    assert world.ask(26, 1, **said).error_code == 0


@extreme("Transactions", "10,000 producer ids, asked for ahead")
def producer_ids(world: World) -> Steps:
    asked = {"transactional_id": None, "transaction_timeout_ms": 60_000, "producer_id": -1, "producer_epoch": -1}
    yield
    while True:
        for _ in range(10):
            for _ in range(1_000):
                world.admin.send(world.admin.request(22, 2, **asked))
            for _ in range(1_000):
                world.admin.frame(PATIENCE_S)
        yield


# -- share groups ------------------------------------------------------------------------------------------------------


@extreme("Share groups", "2,000 records are acknowledged one by one in one request")
def share(world: World) -> Steps:
    world.topic("t")
    for _ in range(12):
        world.produce({"t": [(0, small())] * 2_000})
    topic_id = world.ask(3, 12, topics=[part(3, "MetadataRequestTopic", name="t")]).topics[0].topic_id
    member = "0123456789abcdefghijkl"

    def beat(epoch: int) -> Any:
        return world.ask(
            76, 1, group_id="s", member_id=member, member_epoch=epoch, rack_id=None, subscribed_topic_names=["t"]
        )

    epoch = beat(0).member_epoch
    world.until(lambda: beat(epoch).assignment is not None or beat(epoch).error_code == 0)
    session = count(1)

    def asks(**more: Any) -> Any:
        # A peer of its own would have a session of its own.
        return world.ask(
            78, 1, group_id="s", member_id=member, max_wait_ms=500, min_bytes=1, max_bytes=50 << 20, max_records=2_000,
            batch_size=1, forgotten_topics_data=[], **more,
        )  # fmt: skip

    first = part(78, "FetchPartition", partition_index=0, acknowledgement_batches=[])
    asks(share_session_epoch=0, topics=[part(78, "FetchTopic", topic_id=topic_id, partitions=[first])])
    yield
    held: list[tuple[int, int]] = []
    while True:
        while not held:
            answer = asks(share_session_epoch=next(session), topics=[])
            held = [
                (each.first_offset, each.last_offset)
                for topic in answer.responses
                for of in topic.partitions
                for each in of.acquired_records
            ]
        one_by_one = [
            part(
                79, "AcknowledgementBatch", first_offset=offset, last_offset=offset, acknowledge_types=[1 + offset % 3]
            )
            for low, high in held
            for offset in range(low, high + 1)
        ]
        world.forget()
        acknowledged = part(79, "AcknowledgePartition", partition_index=0, acknowledgement_batches=one_by_one)
        topics = [part(79, "AcknowledgeTopic", topic_id=topic_id, partitions=[acknowledged])]
        said = {"group_id": "s", "member_id": member, "share_session_epoch": next(session), "topics": topics}
        assert world.ask(79, 1, **said).error_code == 0
        held = []
        yield


# -- connections, HTTP -------------------------------------------------------------------------------------------------


@extreme("Others", "1,000 connections come, ask and go")
def connections(world: World) -> Steps:
    request = produce_request({"t": [(0, small())]})
    world.topic("t")
    yield
    while True:
        peers = [world.peer() for _ in range(1_000)]
        for peer in peers:
            peer.send(request)
        for peer in peers:
            assert produced(peer.frame(PATIENCE_S)) == {0}
        for peer in peers:
            peer.close()
        yield


@extreme("Others", "/metrics with 100,000 partitions and a group that has read them")
def scrape(world: World) -> Steps:
    wide_broker(world)
    for index in range(10):
        world.ask(8, 6, **commit("g", [(f"wide{index}", range(WIDE))], 0))
    yield
    while True:
        world.longest()
        yield


def to_all(world: World) -> None:
    """A record to each of 100,000 partitions."""
    for index in range(10):
        for first in range(0, WIDE, 1_000):
            assert world.produce({f"wide{index}": [(at, small()) for at in range(first, first + 1_000)]}) == {0}


@extreme("Others", "a checkpoint with 100,000 partitions, all of them written to")
def checkpoint(world: World) -> Steps:
    wide_broker(world)
    yield
    while True:
        before = world.checkpoints()
        to_all(world)
        while world.checkpoints() == before:
            assert world.produce({"wide0": [(at, small()) for at in range(WIDE)]}) == {0}
        yield


@extreme(
    "Others", "the log's next segment with 100,000 partitions", log={"segment_bytes": "64MiB", "flush": "interval"}
)
def next_segment(world: World) -> Steps:
    wide_broker(world)
    to_all(world)
    world.topic("t")
    yield
    while True:
        for _ in range(20):
            world.stored("t", records(1, (), b"x" * (FULL_BYTES - 1_000)))
        yield
