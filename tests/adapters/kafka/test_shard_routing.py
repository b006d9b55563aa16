"""One server in front of several shards: each request is answered where what it is about lies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from kafka_rig import RigClient
from shard_rig import HERE, SHARDS, ShardRig, name_in

from halfmoon.adapters.kafka.registry import Close, Deferred
from halfmoon.adapters.kafka.shards import when_all
from halfmoon.cluster.asking import Told
from halfmoon.cluster.messages import NewProducer, ProducerFound, Question
from halfmoon.cluster.placement import Layout
from halfmoon.errors import BrokerError, Fault
from halfmoon.schema.shards import OWN_PRODUCERS_BITS
from halfmoon.server.workers.homes import LocalShards
from halfmoon.services.groups.service import GroupService
from tests.kafka_messages import made

LOAD_IN_PROGRESS, NOT_COORDINATOR = 14, 16
COMMIT, FETCH, JOIN, HEARTBEAT, LEAVE, SYNC, DESCRIBE, LIST, INIT = 8, 9, 11, 12, 13, 14, 15, 16, 22
ADD, ADD_OFFSETS, END, TXN_COMMIT, DELETE, DESCRIBE_TXNS, LIST_TXNS, NEW_HEARTBEAT, NEW_DESCRIBE = (
    24, 25, 26, 28, 42, 65, 66, 68, 69,
)  # fmt: skip


ELSEWHERE = (1, 3)


@pytest.fixture
def rig() -> ShardRig:
    rig = ShardRig()
    rig.topic("t", 4)
    return rig


@pytest.fixture
def client(rig: ShardRig) -> RigClient:
    return RigClient(rig)  # type: ignore[arg-type]


def commit(client: RigClient, group: str, offset: int = 5) -> int:
    part = made(
        COMMIT, "OffsetCommitRequestTopic.OffsetCommitRequestPartition", partition_index=3, committed_offset=offset,
        committed_metadata=None,
    )  # fmt: skip
    topics = [made(COMMIT, "OffsetCommitRequestTopic", name="t", partitions=[part])]
    answer = client.ask(COMMIT, 9, group_id=group, topics=topics)
    return int(answer.topics[0].partitions[0].error_code)


def test_offsets_are_committed_where_the_group_is_coordinated(rig: ShardRig, client: RigClient) -> None:
    """Also those of partitions that lie elsewhere."""
    for shard in HERE:
        assert commit(client, name_in(shard), shard) == 0
    for shard in ELSEWHERE:
        assert commit(client, name_in(shard)) == NOT_COORDINATOR
    found = {number: list(node.services.get(GroupService).all_offsets) for number, node in rig.nodes.items()}
    assert found == {shard: [name_in(shard)] for shard in HERE}
    (places,) = rig.nodes[0].services.get(GroupService).all_offsets.values()
    assert list(places) == [(0, 3)]


@pytest.mark.parametrize("version", [1, 2, 7])
def test_offsets_are_fetched_from_there(client: RigClient, version: int) -> None:
    for shard in HERE:
        commit(client, name_in(shard), shard)
    topics = [made(FETCH, "OffsetFetchRequestTopic", name="t", partition_indexes=[3])]
    for shard in HERE:
        answer = client.ask(FETCH, version, group_id=name_in(shard), topics=topics)
        assert answer.topics[0].partitions[0].committed_offset == shard
    answer = client.ask(FETCH, version, group_id=name_in(3), topics=topics)
    assert (answer.topics[0].partitions[0] if version == 1 else answer).error_code == NOT_COORDINATOR


def test_all_offsets_of_a_group_are_fetched_wherever_the_partitions_lie(rig: ShardRig, client: RigClient) -> None:
    for shard in HERE:
        commit(client, name_in(shard), shard)
        answer = client.ask(FETCH, 7, group_id=name_in(shard), topics=None)
        assert [(each.name, [part.committed_offset for part in each.partitions]) for each in answer.topics] == [
            ("t", [shard])
        ]
        offsets = rig.nodes[shard].services.get(GroupService).offsets(name_in(shard))
        assert [(partition.index, committed.offset) for partition, committed in offsets.items()] == [(3, shard)]


def test_many_groups_are_fetched_at_once(client: RigClient) -> None:
    for shard in HERE:
        commit(client, name_in(shard), shard)
    topics = [made(FETCH, "OffsetFetchRequestGroup.OffsetFetchRequestTopics", name="t", partition_indexes=[3])]
    groups = [made(FETCH, "OffsetFetchRequestGroup", group_id=name_in(shard), topics=topics) for shard in range(4)]
    found = {each.group_id: each for each in client.ask(FETCH, 8, groups=groups).groups}
    assert [found[name_in(shard)].topics[0].partitions[0].committed_offset for shard in HERE] == [0, 2]
    assert [found[name_in(shard)].error_code for shard in ELSEWHERE] == [NOT_COORDINATOR] * 2
    (only,) = client.ask(FETCH, 8, groups=groups[2:3]).groups
    assert (only.group_id, only.topics[0].partitions[0].committed_offset) == (name_in(2), 2)


@pytest.mark.parametrize("version", [8, 9])
def test_who_asks_for_positions_in_a_group_that_is_elsewhere_looks_for_its_coordinator(
    rig: ShardRig, client: RigClient, version: int
) -> None:
    """librdkafka's issue 5586: a member of a new group that is told NOT_COORDINATOR asks no more, and reads nothing.
    An administrator, who asks for all partitions, is told."""
    group = made(FETCH, "OffsetFetchRequestGroup", group_id=name_in(3), topics=None)
    (only,) = client.ask(FETCH, version, groups=[group]).groups
    assert (only.group_id, only.error_code) == (name_in(3), NOT_COORDINATOR)
    group.topics = [made(FETCH, "OffsetFetchRequestGroup.OffsetFetchRequestTopics", name="t", partition_indexes=[3])]
    client.feed(client.encode(FETCH, version, groups=[group]))
    rig.turn()
    assert client.transport.closed


def test_groups_are_described_listed_and_deleted(client: RigClient) -> None:
    names = [name_in(shard) for shard in range(SHARDS)]
    here, elsewhere = [names[shard] for shard in HERE], [names[shard] for shard in ELSEWHERE]
    for name in here:
        commit(client, name)
    described = client.ask(DESCRIBE, 5, groups=names).groups
    assert {each.group_id: (each.error_code, each.group_state) for each in described} == {
        **dict.fromkeys(here, (0, "Empty")),
        **dict.fromkeys(elsewhere, (NOT_COORDINATOR, "")),
    }
    assert sorted(each.group_id for each in client.ask(LIST, 4, states_filter=[]).groups) == sorted(here)
    deleted = client.ask(DELETE, 2, groups_names=names).results
    assert {each.group_id: each.error_code for each in deleted} == {
        **dict.fromkeys(here, 0),
        **dict.fromkeys(elsewhere, NOT_COORDINATOR),
    }
    assert client.ask(LIST, 4, states_filter=[]).groups == []
    assert client.ask(DESCRIBE, 5, groups=[]).groups == []


def test_members_join_where_their_group_is(rig: ShardRig, client: RigClient) -> None:
    protocols = [made(JOIN, "JoinGroupRequestProtocol", name="range", metadata=b"")]

    times = {"session_timeout_ms": 10_000, "rebalance_timeout_ms": 10_000}
    joining = {"member_id": "", "protocol_type": "consumer", "protocols": protocols, **times}
    assert client.ask(JOIN, 3, group_id=name_in(3), **joining).error_code == NOT_COORDINATOR
    client.feed(client.encode(JOIN, 3, group_id=name_in(2), **joining))
    rig.pass_time(10_000)
    (joined,) = client.answers()
    assert (joined.error_code, joined.generation_id) == (0, 1)
    beat = {"group_id": name_in(2), "generation_id": 1, "member_id": joined.member_id}
    assert client.ask(HEARTBEAT, 3, **beat).error_code == 0
    assert client.ask(HEARTBEAT, 3, **beat | {"group_id": name_in(0)}).error_code == 25
    assert client.ask(HEARTBEAT, 3, **beat | {"group_id": name_in(3)}).error_code == NOT_COORDINATOR
    assert client.ask(SYNC, 3, **beat | {"group_id": name_in(3)}, assignments=[]).error_code == NOT_COORDINATOR
    assert client.ask(LEAVE, 2, group_id=name_in(3), member_id="m").error_code == NOT_COORDINATOR


def test_groups_of_the_new_protocol(client: RigClient) -> None:
    def beat(group: str) -> Any:
        return client.ask(
            NEW_HEARTBEAT, 1, group_id=group, member_id="m", member_epoch=0, rebalance_timeout_ms=10_000,
            subscribed_topic_names=["t"], topic_partitions=[],
        )  # fmt: skip

    answer = beat(name_in(2))
    assert answer.error_code == 0
    assert sorted(answer.assignment.topic_partitions[0].partitions) == list(range(SHARDS))
    assert beat(name_in(3)).error_code == NOT_COORDINATOR
    described = client.ask(NEW_DESCRIBE, 1, group_ids=[name_in(shard) for shard in (0, 2, 3)]).groups
    assert {each.group_id: each.error_code for each in described} == {
        name_in(2): 0, name_in(0): 69, name_in(3): NOT_COORDINATOR,
    }  # fmt: skip


def init(client: RigClient, name: str | None) -> tuple[int, int]:
    new = {"producer_id": -1, "producer_epoch": -1}
    answer = client.ask(INIT, 4, transactional_id=name, transaction_timeout_ms=60_000, **new)
    return answer.error_code, answer.producer_id


def test_producers_have_ids_of_the_shard_that_gives_them(client: RigClient) -> None:
    ids = [init(client, name_in(shard)) for shard in HERE]
    assert [(error, producer >> OWN_PRODUCERS_BITS) for error, producer in ids] == [(0, 0), (0, 2)]
    assert init(client, name_in(3))[0] == NOT_COORDINATOR
    assert init(client, None)[0] == 0


def test_a_shard_whose_log_takes_no_writes_gives_no_ids(rig: ShardRig, client: RigClient) -> None:
    """It may stay open here for long, so that it can be read."""
    first, second = HERE
    rig.nodes[first].kernel.log.failed = OSError("the database has lost something of it")
    error, producer = init(client, None)
    assert (error, producer >> OWN_PRODUCERS_BITS) == (0, second)
    rig.nodes[second].kernel.log.failed = OSError("it is away")
    assert init(client, None)[0] == LOAD_IN_PROGRESS, "nobody else can be asked"


class TestIdsOfProducers:
    """Without a transactional id: from a fast shard. What is written in the others is durable only once the object
    store has it."""

    @pytest.fixture
    def rig(self) -> ShardRig:
        rig = ShardRig(layout=Layout(SHARDS, 2))
        rig.homes.remove(0)
        return rig

    def test_a_fast_shard_of_this_process_gives_them(self, rig: ShardRig, client: RigClient) -> None:
        rig.homes.add(0, rig.nodes[0])
        assert [home.core for home in rig.homes.all()] == [rig.nodes[2].kernel, rig.nodes[0].kernel]
        rig.nodes[2].kernel.log.failed = OSError("the object store is away")
        error, producer = init(client, None)
        assert (error, producer >> OWN_PRODUCERS_BITS) == (0, 0)

    def test_else_one_of_another_process(self, rig: ShardRig, client: RigClient) -> None:
        asked: list[int] = []

        class Others:
            def ask(self, shard: int, question: Question, told: Told) -> None:
                assert isinstance(question, NewProducer)
                asked.append(shard)
                told(ProducerFound(70 + shard) if len(asked) == 2 else BrokerError(Fault.NOT_LEADER_OR_FOLLOWER))

        rig.asking = Others()
        error, producer = init(client, None)
        assert (error, producer - 70) == (0, asked[1])
        assert sorted(asked) == [0, 1]

    def test_so_many_that_nobody_can_be_reached(self, rig: ShardRig) -> None:
        """Each says so at once: one call within the other would be more than Python allows. And where one says so later
        than it was asked, the next one is asked then."""
        layout = Layout.of_workers(5_000)
        asked: list[int] = []
        late: list[Told] = []
        answers: list[int | BrokerError] = []

        class Nobody:
            def ask(self, shard: int, question: Question, told: Told) -> None:
                asked.append(shard)
                if len(asked) in (2_000, 4_000):
                    late.append(told)
                else:
                    told(BrokerError(Fault.NOT_LEADER_OR_FOLLOWER))

        LocalShards(rig.front, rig.nodes, layout, rig.homes.change, Nobody()).new_producer(answers.append)
        for count in (2_000, 4_000):
            assert (len(asked), answers) == (count, [])
            late.pop()(BrokerError(Fault.NOT_LEADER_OR_FOLLOWER))
        assert sorted(asked) == list(range(5_000))
        (answer,) = answers
        assert isinstance(answer, BrokerError)
        assert answer.fault is Fault.COORDINATOR_LOAD_IN_PROGRESS


@pytest.mark.parametrize("version", [3, 4])
def test_transactions_are_where_their_id_is_coordinated(client: RigClient, version: int) -> None:
    def add(names: Sequence[str]) -> list[int]:
        topics = [made(ADD, "AddPartitionsToTxnTopic", name="t", partitions=[0, 3])]
        if version < 4:
            found = []
            for name in names:
                answer = client.ask(
                    ADD, version, v3_and_below_transactional_id=name, v3_and_below_producer_id=ids.get(name, 7),
                    v3_and_below_producer_epoch=0, v3_and_below_topics=topics,
                )  # fmt: skip
                (topic,) = answer.results_by_topic_v3_and_below
                found += [part.partition_error_code for part in topic.results_by_partition]
            return found
        asked = [
            made(
                ADD, "AddPartitionsToTxnTransaction", transactional_id=name, producer_id=ids.get(name, 7),
                producer_epoch=0, verify_only=False, topics=topics,
            )
            for name in names
        ]  # fmt: skip
        answer = client.ask(ADD, version, transactions=asked)
        results = {each.transactional_id: each for each in answer.results_by_transaction}
        return [
            part.partition_error_code for name in names for part in results[name].topic_results[0].results_by_partition
        ]

    names = [name_in(shard, "x") for shard in range(SHARDS)]
    ids = {names[shard]: init(client, names[shard])[1] for shard in HERE}
    assert add(names[:1] + names[3:]) == [0, 0, NOT_COORDINATOR, NOT_COORDINATOR]
    answer = client.ask(ADD_OFFSETS, 3, transactional_id=names[3], producer_id=1, producer_epoch=0, group_id="g")
    assert answer.error_code == NOT_COORDINATOR
    listed = client.ask(LIST_TXNS, 1, state_filters=["Ongoing"], producer_id_filters=[], duration_filter=-1)
    assert [each.transactional_id for each in listed.transaction_states] == [names[0]]
    described = client.ask(DESCRIBE_TXNS, 0, transactional_ids=names).transaction_states
    assert {each.transactional_id: (each.error_code, each.transaction_state) for each in described} == {
        names[0]: (0, "Ongoing"), names[1]: (NOT_COORDINATOR, ""), names[2]: (0, "Empty"),
        names[3]: (NOT_COORDINATOR, ""),
    }  # fmt: skip
    ended = {"producer_epoch": 0, "committed": False}
    assert client.ask(END, 3, transactional_id=names[0], producer_id=ids[names[0]], **ended).error_code == 0
    assert client.ask(END, 3, transactional_id=names[3], producer_id=7, **ended).error_code == NOT_COORDINATOR
    part = made(
        TXN_COMMIT, "TxnOffsetCommitRequestTopic.TxnOffsetCommitRequestPartition", partition_index=0,
        committed_offset=1, committed_leader_epoch=-1, committed_metadata=None,
    )  # fmt: skip
    topics = [made(TXN_COMMIT, "TxnOffsetCommitRequestTopic", name="t", partitions=[part])]
    answer = client.ask(
        TXN_COMMIT, 3, transactional_id=names[0], group_id=name_in(3), producer_id=7, producer_epoch=0, topics=topics,
        generation_id=-1, member_id="",
    )  # fmt: skip
    assert answer.topics[0].partitions[0].error_code == NOT_COORDINATOR


# -- answers that are put together -------------------------------------------------------------------------------------


def test_answers_that_are_there_are_joined_at_once() -> None:
    assert when_all([1, 2], lambda parts: parts) == [1, 2]
    assert when_all([], lambda parts: parts) == []


def test_those_that_come_later_are_waited_for() -> None:
    first, last = Deferred(), Deferred()
    whole = when_all([first, 2, last], lambda parts: parts)
    assert isinstance(whole, Deferred)
    last.complete(3)
    assert not whole.done
    first.complete(1)
    assert whole.value == [1, 2, 3]


def test_who_is_in_a_hurry_hurries_all_of_them() -> None:
    hurried: list[int] = []
    parts = [Deferred(), Deferred(), Deferred()]
    parts[0].hurry = lambda: hurried.append(0)
    parts[2].hurry = lambda: parts[2].complete(9)
    whole = when_all(parts, lambda found: found)
    assert isinstance(whole, Deferred)
    assert whole.hurry is not None
    whole.hurry()
    assert hurried == [0]
    parts[0].complete(7)
    parts[1].complete(8)
    assert whole.value == [7, 8, 9]


def test_one_that_closes_the_connection_does_so() -> None:
    later = Deferred()
    whole = when_all([1, later], lambda parts: parts)
    assert isinstance(whole, Deferred)
    later.complete(Close("malformed"))
    assert whole.value == Close("malformed")
    assert when_all([Close("so"), 1], lambda parts: parts) == Close("so")
