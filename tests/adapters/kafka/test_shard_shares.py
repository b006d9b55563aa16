"""Share groups whose partitions lie in the shards of two processes."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from typing import Any

import msgspec
import pytest
from shard_rig import HERE, ME, OTHER, SHARDS, THERE, name_in
from two_processes import TwoProcesses

from halfmoon.cluster.messages import ForgetShareGroups, ResetShare, ShareMemberGone
from halfmoon.core.catalog.topics import Topic
from halfmoon.services.share.delivery_state import ACQUIRED
from tests.kafka_messages import made

COMMIT, LIST, DELETE_GROUPS, HEARTBEAT, DESCRIBE, FETCH, ACKNOWLEDGE, OFFSETS, ALTER, DELETE = (
    8, 16, 42, 76, 77, 78, 79, 90, 91, 92,
)  # fmt: skip
ACCEPT, RELEASE, RENEW = 1, 2, 4
NOT_LEADER, NO_COORDINATOR, NOT_COORDINATOR, NOT_EMPTY, NO_GROUP = 6, 15, 16, 68, 69
UNKNOWN_TOPIC, STORAGE_ERROR, NO_TOPIC_ID, OLD_EPOCH = 3, 56, 100, 123
EXACTLY = 1

GROUP = name_in(0)
"""The first process coordinates it."""
FAR = name_in(1)
"""The other one does."""
NOBODY = name_in(2, "nobody")


@pytest.fixture
def two() -> TwoProcesses:
    return TwoProcesses(groups={"share": {"auto_offset_reset": "earliest"}})


@pytest.fixture
def topic(two: TwoProcesses) -> Topic:
    return two.topic("t", 8)


class Member:
    """On a connection to one of the processes."""

    def __init__(self, two: TwoProcesses, topic: Topic, process: int = 0, name: str = "m", group: str = GROUP) -> None:
        self.two, self.topic, self.name, self.group = two, topic, name, group
        self.client = two.client(process)
        self.epoch = 0

    def send(self, named: Iterable[int] = (), acks: Iterable[tuple[int, int, int]] = (), **fields: Any) -> None:
        """`acks`: (partition, last offset, what); from 0 on."""
        part = "FetchTopic.FetchPartition"
        said = {
            index: [
                made(FETCH, f"{part}.AcknowledgementBatch", first_offset=0, last_offset=last, acknowledge_types=[what])
            ]
            for index, last, what in acks
        }
        parts = [
            made(FETCH, part, partition_index=index, acknowledgement_batches=said.get(index, []))
            for index in dict.fromkeys((*named, *said))
        ]
        topics = [made(FETCH, "FetchTopic", topic_id=uuid.UUID(bytes=self.topic.id), partitions=parts)] if parts else []
        asked = {
            "group_id": self.group, "member_id": self.name, "share_session_epoch": self.epoch, "max_wait_ms": 0,
            "min_bytes": 1, "max_bytes": 1 << 20, "max_records": 100, "batch_size": 100, "share_acquire_mode": 0,
            "is_renew_ack": False, "topics": topics, "forgotten_topics_data": [],
        }  # fmt: skip
        self.client.feed(self.client.encode(FETCH, 2, **(asked | fields)))
        self.epoch += 1

    def answer(self) -> Any:
        answers = self.client.answers()
        return answers[0] if answers else None

    def fetch(self, named: Iterable[int] = (), acks: Iterable[tuple[int, int, int]] = (), **fields: Any) -> Any:
        self.send(named, acks, **fields)
        self.two.turn()
        return self.answer()

    def send_acknowledgement(self, acks: Iterable[tuple[int, int, int]], **fields: Any) -> None:
        topic, part = "AcknowledgeTopic", "AcknowledgeTopic.AcknowledgePartition"
        parts = [
            made(
                ACKNOWLEDGE, part, partition_index=index,
                acknowledgement_batches=[
                    made(
                        ACKNOWLEDGE, f"{part}.AcknowledgementBatch", first_offset=0, last_offset=last,
                        acknowledge_types=[what],
                    )
                ],
            )
            for index, last, what in acks
        ]  # fmt: skip
        asked = {
            "group_id": self.group, "member_id": self.name, "share_session_epoch": self.epoch, "is_renew_ack": False,
            "topics": [made(ACKNOWLEDGE, topic, topic_id=uuid.UUID(bytes=self.topic.id), partitions=parts)],
        }  # fmt: skip
        self.client.feed(self.client.encode(ACKNOWLEDGE, 2, **(asked | fields)))
        self.epoch += 1

    def acknowledge(self, acks: Iterable[tuple[int, int, int]], **fields: Any) -> dict[int, int]:
        """Partition → error code."""
        self.send_acknowledgement(acks, **fields)
        self.two.turn()
        self.said = self.answer()
        assert self.said.error_code == 0
        return {part.partition_index: part.error_code for each in self.said.responses for part in each.partitions}


def acquired(answer: Any) -> dict[int, list[tuple[int, int, int]]]:
    """Partition → (first, last, how often)."""
    assert answer.error_code == 0
    return {
        part.partition_index: [
            (each.first_offset, each.last_offset, each.delivery_count) for each in part.acquired_records
        ]
        for topic in answer.responses
        for part in topic.partitions
        if part.acquired_records
    }  # fmt: skip


def errors(answer: Any) -> dict[int, int]:
    return {
        part.partition_index: part.error_code
        for topic in answer.responses
        for part in topic.partitions
        if part.error_code
    }


def mine(two: TwoProcesses, topic: Topic, process: int = 0) -> list[int]:
    return [index for index in range(len(topic.partitions)) if two.shard_of(topic, index) in (HERE, THERE)[process]]


def locked(two: TwoProcesses, topic: Topic, index: int, group: str = GROUP) -> int:
    """How many records somebody holds."""
    node = two.nodes[two.shard_of(topic, index)]
    parts = node.shares.delivery.parts.at(group, [two.partition(topic, index)])
    return sum(part.counts[ACQUIRED] for part in parts)


def beat(two: TwoProcesses, group: str, member: str, epoch: int = 0, topics: list[str] | None = None) -> Any:
    client = two.client(1 if group == FAR else 0)
    return client.ask(
        HEARTBEAT, 1, group_id=group, member_id=member, member_epoch=epoch, rack_id=None,
        subscribed_topic_names=["t"] if epoch == 0 else topics,
    )  # fmt: skip


# -- members -----------------------------------------------------------------------------------------------------------


def test_one_fetch_gets_what_there_is_in_all_shards_of_the_process(two: TwoProcesses, topic: Topic) -> None:
    here = mine(two, topic)
    two.produce(topic, *((index, 2) for index in range(8)))
    answer = Member(two, topic).fetch(here)
    assert acquired(answer) == {index: [(0, 1, 1)] for index in here}
    assert errors(answer) == {}
    for index in here:  # it stands where the partition lies
        states = two.nodes[two.shard_of(topic, index)].state.share.delivery_states[GROUP]
        assert (topic.number, index) in states
        assert {two.shard_of(topic, each) for _, each in states} == {two.shard_of(topic, index)}


def test_the_limit_is_of_the_whole_request(two: TwoProcesses, topic: Topic) -> None:
    here = mine(two, topic)
    two.produce(topic, *((index, 3) for index in here))
    member = Member(two, topic)
    given = 0
    for _ in range(3):
        found = acquired(member.fetch(here, max_records=5, share_acquire_mode=EXACTLY))
        count = sum(last - first + 1 for pieces in found.values() for first, last, _ in pieces)
        assert count == min(5, 12 - given)
        given += count
    assert acquired(member.fetch(here)) == {}


def test_a_session_is_the_process_s(two: TwoProcesses, topic: Topic) -> None:
    here = mine(two, topic)
    member = Member(two, topic)
    assert acquired(member.fetch(here)) == {}
    two.produce(topic, *((index, 1) for index in here))
    gone = here[:2]
    forgotten = made(FETCH, "ForgottenTopic", topic_id=uuid.UUID(bytes=topic.id), partitions=gone)
    assert set(acquired(member.fetch(forgotten_topics_data=[forgotten]))) == set(here) - set(gone)
    assert member.fetch(share_session_epoch=7).error_code == OLD_EPOCH
    assert len(two.nodes[0].shares.sessions) == 1
    assert [node.shares.session_count for node in two.nodes.values()] == [1, 0, 0, 0]
    assert [node.shares.session_count for node in two.rigs[1].nodes.values()] == [0, 0]


def test_what_another_process_owns_is_refused_and_its_leader_told(two: TwoProcesses, topic: Topic) -> None:
    here, there = mine(two, topic), mine(two, topic, 1)
    two.produce(topic, *((index, 1) for index in range(8)))
    member = Member(two, topic)
    answer = member.fetch(range(8))
    assert sorted(acquired(answer)) == here
    assert errors(answer) == dict.fromkeys(there, NOT_LEADER)
    leaders = {part.partition_index: part.current_leader.leader_id for part in answer.responses[0].partitions}
    assert leaders == {index: OTHER.node_id if index in there else 0 for index in range(8)}
    assert [(each.node_id, each.host, each.port) for each in answer.node_endpoints] == [(OTHER.node_id, *OTHER.kafka)]
    assert member.acknowledge((index, 0, ACCEPT) for index in range(8)) == {
        index: NOT_LEADER if index in there else 0 for index in range(8)
    }
    leaders = {part.partition_index: part.current_leader.leader_id for part in member.said.responses[0].partitions}
    assert leaders == {index: OTHER.node_id if index in there else 0 for index in range(8)}
    assert [each.node_id for each in member.said.node_endpoints] == [OTHER.node_id]
    far = Member(two, topic, 1, "n").fetch(range(8))
    assert sorted(acquired(far)) == there
    assert [each.node_id for each in far.node_endpoints] == [ME.node_id]


@pytest.mark.parametrize("by_fetch", [True, False])
def test_acknowledgements_are_told_once_all_logs_have_them(two: TwoProcesses, topic: Topic, by_fetch: bool) -> None:
    here = mine(two, topic)
    two.produce(topic, *((index, 2) for index in here))
    member = Member(two, topic)
    member.fetch(here)
    acks = [(index, 1, ACCEPT) for index in here]
    two.nodes[2].kernel.log.failed = OSError("no more")
    if by_fetch:
        answer = member.fetch(acks=acks)
        found = {part.partition_index: part.acknowledge_error_code for part in answer.responses[0].partitions}
    else:
        found = member.acknowledge(acks)
    assert found == {index: STORAGE_ERROR if two.shard_of(topic, index) == 2 else 0 for index in here}


def test_an_answer_waits_for_each_of_the_logs(two: TwoProcesses, topic: Topic) -> None:
    here = mine(two, topic)
    two.produce(topic, *((index, 1) for index in here))
    member = Member(two, topic)
    member.fetch(here)
    member.send(acks=[(index, 0, ACCEPT) for index in here])
    for node in two.rigs[0].nodes.values():
        two.rigs[0].loop.run()
        assert member.answer() is None
        node.kernel.write()
        node.kernel.turn.flush()
        node.kernel.turn.settle()
    two.rigs[0].loop.run()
    assert member.answer() is not None


@pytest.mark.parametrize("shard", HERE)
def test_a_fetch_waits_in_all_shards(two: TwoProcesses, topic: Topic, shard: int) -> None:
    here = mine(two, topic)
    member = Member(two, topic)
    member.send(here, max_wait_ms=5_000)
    two.turn()
    assert member.answer() is None
    index = two.index_in(topic, shard)
    two.produce(topic, (index, 1))
    assert acquired(member.answer()) == {index: [(0, 0, 1)]}


def test_records_are_taken_back_where_they_stand(two: TwoProcesses, topic: Topic) -> None:
    """By the end of the lock, and by the end of the connection."""
    here = mine(two, topic)
    two.produce(topic, *((index, 1) for index in here))
    member = Member(two, topic)
    member.fetch(here)
    two.pass_time(29_000)
    assert {locked(two, topic, index) for index in here} == {1}
    two.pass_time(2_000)
    assert {locked(two, topic, index) for index in here} == {0}
    assert acquired(member.fetch()) == {index: [(0, 0, 2)] for index in here}
    member.client.connection.connection_lost(None)
    two.turn()
    assert {locked(two, topic, index) for index in here} == {0}
    assert len(two.nodes[0].shares.sessions) == 0


def test_who_is_silent_for_too_long_loses_what_he_holds_in_every_process(two: TwoProcesses, topic: Topic) -> None:
    assert beat(two, FAR, "m").error_code == 0
    two.produce(topic, *((index, 1) for index in range(8)))
    members = [Member(two, topic, process, "m", FAR) for process in (0, 1)]
    two.pass_time(40_000)
    for process, member in enumerate(members):
        member.fetch(mine(two, topic, process))
    assert {locked(two, topic, index, FAR) for index in range(8)} == {1}
    two.pass_time(10_000)
    assert {locked(two, topic, index, FAR) for index in range(8)} == {0}
    assert [len(two.nodes[shard].shares.sessions) for shard in (0, 1)] == [0, 0]
    gone = [shard for shard, question in two.questions.asked if isinstance(question, ShareMemberGone)]
    assert gone == list(HERE)


@pytest.mark.parametrize("is_lost", [False, True])
def test_that_a_member_is_gone_is_told_once_it_is_durable(two: TwoProcesses, topic: Topic, is_lost: bool) -> None:
    """A shard that another node has by now, where the member lives on, declares nobody gone."""
    beat(two, FAR, "m")
    two.produce(topic, *((index, 1) for index in range(8)))
    two.pass_time(40_000)
    for process in (0, 1):
        Member(two, topic, process, "m", FAR).fetch(mine(two, topic, process))
    coordinator = two.nodes[1]
    two.clock.now_ms += 10_000
    coordinator.shares.expire(two.clock.now_ms)
    assert coordinator.shares.members.has_members(FAR) is False
    if is_lost:
        coordinator.kernel.log.failed = OSError("another node has it")
    assert {locked(two, topic, index, FAR) for index in range(8)} == {1}
    assert not [question for _, question in two.questions.asked if isinstance(question, ShareMemberGone)]
    two.turn()
    gone = [shard for shard, question in two.questions.asked if isinstance(question, ShareMemberGone)]
    assert gone == ([] if is_lost else list(HERE))
    assert {locked(two, topic, index, FAR) for index in range(8)} == {int(is_lost)}


def test_what_cannot_be_told_is_taken_back_by_its_lock(two: TwoProcesses, topic: Topic) -> None:
    beat(two, FAR, "m")
    two.produce(topic, (mine(two, topic)[0], 1))
    two.pass_time(40_000)
    Member(two, topic, 0, "m", FAR).fetch(mine(two, topic))
    two.questions.unreachable |= set(HERE)
    two.pass_time(10_000)
    assert locked(two, topic, mine(two, topic)[0], FAR) == 1
    two.pass_time(25_000)
    assert locked(two, topic, mine(two, topic)[0], FAR) == 0


def test_who_leaves_and_has_no_session_holds_nothing(two: TwoProcesses, topic: Topic) -> None:
    here = mine(two, topic)
    beat(two, GROUP, "m")
    two.produce(topic, *((index, 1) for index in here))
    member = Member(two, topic)
    member.fetch(here)
    assert beat(two, GROUP, "m", -1).error_code == 0
    assert {locked(two, topic, index) for index in here} == {1}, "it has a session"
    member.fetch(share_session_epoch=-1)
    assert {locked(two, topic, index) for index in here} == {0}


# -- groups ------------------------------------------------------------------------------------------------------------


def test_members_are_assigned_partitions_of_all_processes(two: TwoProcesses, topic: Topic) -> None:
    (assigned,) = beat(two, FAR, "m").assignment.topic_partitions
    assert assigned.partitions == list(range(8))
    described = two.client(1).ask(DESCRIBE, 1, group_ids=[FAR], include_authorized_operations=False).groups
    assert [(each.error_code, len(each.members)) for each in described] == [(0, 1)]


def listed(two: TwoProcesses, process: int) -> list[str]:
    groups = two.client(process).ask(LIST, 5, states_filter=[], types_filter=[]).groups
    return [each.group_id for each in groups]


def test_a_group_is_where_it_is_coordinated(two: TwoProcesses, topic: Topic) -> None:
    beat(two, FAR, "m")
    for process in (0, 1):
        Member(two, topic, process, "m", FAR).fetch(mine(two, topic, process))
        Member(two, topic, process, "m", GROUP).fetch(mine(two, topic, process))
    assert listed(two, 0) == []  # GROUP never had a member
    assert listed(two, 1) == [FAR]
    assert FAR in two.nodes[0].state.share.delivery_states


def test_names_are_the_coordinator_s_business(two: TwoProcesses, topic: Topic) -> None:
    """A shard that has only what a share group has done in its partitions lets the name be another group's."""
    Member(two, topic, 0, "m", GROUP).fetch(mine(two, topic))
    assert GROUP in two.nodes[0].state.share.delivery_states
    part = made(
        COMMIT, "OffsetCommitRequestTopic.OffsetCommitRequestPartition", partition_index=0, committed_offset=1,
        committed_metadata=None,
    )  # fmt: skip
    topics = [made(COMMIT, "OffsetCommitRequestTopic", name="t", partitions=[part])]
    answer = two.client(0).ask(COMMIT, 9, group_id=GROUP, topics=topics)
    assert answer.topics[0].partitions[0].error_code == 0
    assert Member(two, topic, 0, "n", GROUP).fetch(mine(two, topic)).error_code == NO_GROUP
    assert Member(two, topic, 1, "n", GROUP).fetch(mine(two, topic, 1)).error_code == 0  # where nobody knows


# -- operators ---------------------------------------------------------------------------------------------------------


def offsets(two: TwoProcesses, group: str, parts: Iterable[int] | None, names: Iterable[str] = ("t",)) -> Any:
    asked = "DescribeShareGroupOffsetsRequestGroup"
    topics = parts and [
        made(OFFSETS, f"{asked}.DescribeShareGroupOffsetsRequestTopic", topic_name=name, partitions=list(parts))
        for name in names
    ]
    client = two.client(1 if group == FAR else 0)
    (found,) = client.ask(OFFSETS, 1, groups=[made(OFFSETS, asked, group_id=group, topics=topics)]).groups
    return found


def rows(group: Any) -> dict[str, dict[int, tuple[int, int, int]]]:
    assert group.error_code == 0
    return {
        topic.topic_name: {
            part.partition_index: (part.error_code, part.start_offset, part.lag) for part in topic.partitions
        }
        for topic in group.topics
    }


@pytest.mark.parametrize("group", [GROUP, FAR])
def test_offsets_are_told_of_all_shards(two: TwoProcesses, topic: Topic, group: str) -> None:
    other = two.topic("u", 2)
    beat(two, group, "m")
    two.produce(topic, *((index, 4) for index in range(8)))
    for process in (0, 1):
        member = Member(two, topic, process, "m", group)
        member.fetch(mine(two, topic, process))
        member.acknowledge((index, index % 4, ACCEPT) for index in mine(two, topic, process))
    expected = {index: (0, index % 4 + 1, 3 - index % 4) for index in range(8)}
    assert rows(offsets(two, group, None)) == {"t": expected}
    found = offsets(two, group, [1, 9, 0], ("t", "u", "nowhere"))
    assert rows(found) == {
        "t": {1: expected[1], 9: (UNKNOWN_TOPIC, -1, -1), 0: expected[0]},
        "u": {1: (0, -1, -1), 9: (UNKNOWN_TOPIC, -1, -1), 0: (0, -1, -1)},
        "nowhere": dict.fromkeys((1, 9, 0), (UNKNOWN_TOPIC, -1, -1)),
    }
    assert [each.topic_id for each in found.topics[:2]] == [uuid.UUID(bytes=each.id) for each in (topic, other)]
    epochs = {part.partition_index: part.leader_epoch for part in offsets(two, group, None).topics[0].partitions}
    assert epochs == {index: two.nodes[two.shard_of(topic, index)].kernel.generation for index in range(8)}


def test_offsets_of_a_shard_that_cannot_be_reached(two: TwoProcesses, topic: Topic) -> None:
    beat(two, GROUP, "m")
    for process in (0, 1):
        Member(two, topic, process).fetch(mine(two, topic, process))
    two.questions.unreachable.add(3)
    assert offsets(two, GROUP, None).error_code == NO_COORDINATOR
    reached = [index for index in range(8) if two.shard_of(topic, index) != 3]
    assert rows(offsets(two, GROUP, reached)) == {"t": dict.fromkeys(reached, (0, 0, 0))}
    assert offsets(two, GROUP, range(8)).error_code == NO_COORDINATOR


def test_offsets_are_asked_of_the_coordinator(two: TwoProcesses, topic: Topic) -> None:
    asked = made(OFFSETS, "DescribeShareGroupOffsetsRequestGroup", group_id=FAR, topics=None)
    (found,) = two.client(0).ask(OFFSETS, 1, groups=[asked]).groups
    assert (found.group_id, found.error_code) == (FAR, NOT_COORDINATOR)
    assert two.client(0).ask(ALTER, 0, group_id=FAR, topics=[]).error_code == NOT_COORDINATOR
    assert two.client(0).ask(DELETE, 0, group_id=FAR, topics=[]).error_code == NOT_COORDINATOR


def alter(two: TwoProcesses, group: str, *starts: tuple[int, int], name: str = "t") -> Any:
    part = "AlterShareGroupOffsetsRequestTopic.AlterShareGroupOffsetsRequestPartition"
    parts = [made(ALTER, part, partition_index=index, start_offset=offset) for index, offset in starts]
    topics = [made(ALTER, "AlterShareGroupOffsetsRequestTopic", topic_name=name, partitions=parts)]
    return two.client(1 if group == FAR else 0).ask(ALTER, 0, group_id=group, topics=topics)


def codes(answer: Any) -> dict[int, int]:
    assert answer.error_code == 0
    return {part.partition_index: part.error_code for topic in answer.responses for part in topic.partitions}


@pytest.mark.parametrize("group", [GROUP, FAR])
def test_offsets_are_altered_in_all_shards(two: TwoProcesses, topic: Topic, group: str) -> None:
    two.produce(topic, *((index, 4) for index in range(8)))
    asked = [(index, 2 + index) for index in range(8)]
    assert codes(alter(two, group, *asked, (9, 0), (-1, 0))) == {**dict.fromkeys(range(8), 0), 9: 3, -1: 3}
    expected = {index: (0, min(2 + index, 4), 4 - min(2 + index, 4)) for index in range(8)}
    assert rows(offsets(two, group, None)) == {"t": expected}
    assert listed(two, 1 if group == FAR else 0) == [group]  # it is made so
    assert listed(two, 0 if group == FAR else 1) == []
    for process in (0, 1):
        found = acquired(Member(two, topic, process, "m", group).fetch(mine(two, topic, process)))
        assert found == {index: [(2 + index, 3, 1)] for index in mine(two, topic, process) if index < 2}


def test_a_group_with_members_is_not_altered(two: TwoProcesses, topic: Topic) -> None:
    beat(two, FAR, "m")
    assert alter(two, FAR, (0, 0)).error_code == NOT_EMPTY
    assert not any(isinstance(question, ResetShare) for _, question in two.questions.asked)


@pytest.mark.parametrize("heard", [False, True])
def test_what_cannot_be_altered_is_told_and_may_be_asked_again(two: TwoProcesses, topic: Topic, heard: bool) -> None:
    two.produce(topic, *((index, 4) for index in range(8)))
    where = two.questions.answers_get_lost if heard else two.questions.unreachable
    where.add(3)
    asked = [(index, 2) for index in range(8)]
    assert codes(alter(two, GROUP, *asked)) == {
        index: NO_COORDINATOR if two.shard_of(topic, index) == 3 else 0 for index in range(8)
    }
    where.clear()
    known = rows(offsets(two, GROUP, None))["t"]
    assert known == {index: (0, 2, 2) for index in range(8) if heard or two.shard_of(topic, index) != 3}
    assert set(codes(alter(two, GROUP, *asked)).values()) == {0}
    assert rows(offsets(two, GROUP, None)) == {"t": dict.fromkeys(range(8), (0, 2, 2))}


def test_a_coordinator_that_cannot_write_alters_nothing(two: TwoProcesses, topic: Topic) -> None:
    two.nodes[0].kernel.log.failed = OSError("no more")
    assert set(codes(alter(two, GROUP, (0, 0), (1, 0))).values()) == {STORAGE_ERROR}
    assert not any(isinstance(question, ResetShare) for _, question in two.questions.asked)


def delete(two: TwoProcesses, group: str, *names: str) -> Any:
    topics = [made(DELETE, "DeleteShareGroupOffsetsRequestTopic", topic_name=name) for name in names]
    return two.client(1 if group == FAR else 0).ask(DELETE, 0, group_id=group, topics=topics)


def test_offsets_are_deleted_in_all_shards(two: TwoProcesses, topic: Topic) -> None:
    two.topic("u", 4)
    assert delete(two, GROUP, "t").error_code == NO_GROUP
    alter(two, GROUP, *((index, 0) for index in range(8)))
    alter(two, GROUP, *((index, 0) for index in range(4)), name="u")
    answer = delete(two, GROUP, "t", "nowhere")
    assert [(each.topic_name, each.error_code) for each in answer.responses] == [("t", 0), ("nowhere", UNKNOWN_TOPIC)]
    assert answer.responses[0].topic_id == uuid.UUID(bytes=topic.id)
    assert rows(offsets(two, GROUP, None)) == {"u": dict.fromkeys(range(4), (0, 0, 0))}
    two.questions.unreachable.add(1)
    assert [each.error_code for each in delete(two, GROUP, "u").responses] == [NO_COORDINATOR]
    beat(two, GROUP, "m")
    assert delete(two, GROUP, "t").error_code == NOT_EMPTY


def delete_groups(two: TwoProcesses, *names: str) -> dict[str, int]:
    answer = two.client(0).ask(DELETE_GROUPS, 2, groups_names=names)
    return {each.group_id: each.error_code for each in answer.results}


def states(two: TwoProcesses, group: str) -> list[int]:
    """Shards that know something of the group."""
    return [shard for shard in range(SHARDS) if group in two.nodes[shard].state.share.delivery_states]


def test_a_group_is_deleted_in_all_shards(two: TwoProcesses, topic: Topic) -> None:
    other = name_in(2)
    for group in (GROUP, other):
        alter(two, group, *((index, 0) for index in range(8)))
        assert states(two, group) == [0, 1, 2, 3]
    beat(two, other, "m")
    assert delete_groups(two, GROUP, other, FAR, NOBODY) == {
        GROUP: 0, other: NOT_EMPTY, FAR: NOT_COORDINATOR, NOBODY: NO_GROUP,
    }  # fmt: skip
    assert states(two, GROUP) == []
    assert states(two, other) == [0, 1, 2, 3]
    assert listed(two, 0) == [other]
    asked = len(two.questions.asked)
    assert delete_groups(two, GROUP) == {GROUP: NO_GROUP}
    assert len(two.questions.asked) == asked


def test_a_group_of_which_not_all_can_be_forgotten_stays(two: TwoProcesses, topic: Topic) -> None:
    alter(two, GROUP, *((index, 0) for index in range(8)))
    two.questions.unreachable.add(3)
    assert delete_groups(two, GROUP) == {GROUP: NO_COORDINATOR}
    assert listed(two, 0) == [GROUP]
    two.questions.unreachable.clear()
    assert delete_groups(two, GROUP) == {GROUP: 0}
    assert states(two, GROUP) == []
    assert [shard for shard, each in two.questions.asked if isinstance(each, ForgetShareGroups)] == [1, 2, 3] * 2


def test_what_shards_know_of_share_groups_is_in_their_logs(two: TwoProcesses, topic: Topic) -> None:
    two.produce(topic, *((index, 4) for index in range(8)))
    alter(two, GROUP, *((index, 2) for index in range(8)))
    for shard, node in two.nodes.items():
        again = type(node.state.share)(node.kernel.catalog)
        for slot in again.slots:
            again.restore(slot, msgspec.Raw(msgspec.msgpack.encode(node.state.share.save(slot))))
        assert again.epochs == ({GROUP: 0} if shard == 0 else {})
        assert {place: state.start for place, state in again.delivery_states[GROUP].items()} == {
            (topic.number, index): 2 for index in range(8) if two.shard_of(topic, index) == shard
        }


# -- what takes time ---------------------------------------------------------------------------------------------------


def test_a_topic_that_is_deleted_ends_the_wait(two: TwoProcesses, topic: Topic) -> None:
    here = mine(two, topic)
    member = Member(two, topic)
    member.send(here, max_wait_ms=5_000)
    two.turn()
    assert member.answer() is None
    two.change(lambda: two.rigs[0].delete(topic))
    assert errors(member.answer()) == dict.fromkeys(here, NO_TOPIC_ID)


@pytest.mark.parametrize("reset", ["earliest", "by_duration:P20000D"])
def test_records_are_read_from_the_disk_of_each_shard(reset: str) -> None:
    log = {"segment_bytes": "1MiB", "low_disk_bytes": 0, "hot_bytes": 0}
    two = TwoProcesses(groups={"share": {"auto_offset_reset": reset}}, log=log)
    topic = two.topic("t", 8)
    here = mine(two, topic)
    two.produce(topic, *((index, 3) for index in here))
    for node in two.rigs[0].nodes.values():
        node.kernel.housekeeping.plan()
        node.fs.cold = True
    member = Member(two, topic)
    member.send(here, max_records=8, share_acquire_mode=EXACTLY, max_wait_ms=500)
    assert member.answer() is None, "it is read in a thread"
    two.turn()
    first = acquired(member.answer())
    assert sum(last - start + 1 for pieces in first.values() for start, last, _ in pieces) == 8
    rest = acquired(member.fetch())
    given = [
        (index, offset)
        for pieces in (first, rest)
        for index, found in pieces.items()
        for start, last, _ in found
        for offset in range(start, last + 1)
    ]
    assert sorted(given) == [(index, offset) for index in here for offset in range(3)]
