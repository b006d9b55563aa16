"""Transactions whose partitions and groups lie in several shards: all of it counts, or nothing, whatever is lost."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy

import pytest
from msgspec.structs import replace

from halfmoon.cluster.messages import EndTransaction, JoinTransaction, Question, TransactionJoined
from halfmoon.errors import AsksFirstError, BrokerError, Fault
from halfmoon.schema import control
from halfmoon.schema.transactions import LAST_EPOCH, Identity, TransactionState
from halfmoon.services.transactions import doubts, prepared, remote
from halfmoon.services.transactions.others import Doubt, End, Outcome
from halfmoon.testing.faulty_files import FaultyFileSystem
from halfmoon.testing.node import BareNode
from tests.core.bench import fill, sync
from tests.core.relay_bench import lose_derived
from tests.services.transactions.shards_bench import Cluster, SpreadClient, name_in
from tests.services.transactions.transaction_bench import markers, transactional_batch

ALL = [0, 1, 2, 3]
COORDINATOR = 0
ITS_PROCESS, OTHER_PROCESS = 0, 1
X, G = name_in(COORDINATOR), name_in(1, "g")
"""A transactional id of shard 0, and a group of shard 1, which is another process's."""
both = pytest.mark.parametrize("bumps", [True, False], ids=["bumps", "does not bump"])
either = pytest.mark.parametrize("commit", [True, False], ids=["commit", "abort"])


@pytest.fixture
def cluster() -> Cluster:
    cluster = Cluster()
    cluster.topic("t", ALL)
    cluster.run()
    return cluster


def begun(cluster: Cluster, name: str = X, *, bumps: bool = True) -> SpreadClient:
    """A producer with something open everywhere."""
    one = SpreadClient(cluster, name, bumps=bumps)
    one.init()
    for index in ALL:
        one.send("t", b"one", index=index)
    one.commit_offsets(G, "t", 5)
    return one


def check(cluster: Cluster, expected: list[bytes], offset: int | None) -> None:
    """All is decided, and counts so."""
    for index in ALL:
        assert cluster.is_decided("t", index), index
        assert cluster.committed("t", index) == expected
    assert cluster.offset(G, "t") == offset
    assert cluster.unstable(G) == 0
    for node in cluster.nodes.values():
        assert not node.state.transactions.prepared
        assert not node.state.transactions.remote


def is_join(question: Question) -> bool:
    return isinstance(question, JoinTransaction)


def is_end(question: Question) -> bool:
    return isinstance(question, EndTransaction)


# -- as it goes --------------------------------------------------------------------------------------------------------


@both
@either
def test_it_counts_everywhere_or_nowhere(cluster: Cluster, bumps: bool, commit: bool) -> None:
    one = begun(cluster, bumps=bumps)
    assert [cluster.is_decided("t", index) for index in ALL] == [False] * 4
    assert cluster.unstable(G) == 1
    one.end(commit=commit)
    check(cluster, [b"one"] if commit else [], 5 if commit else None)
    for index in ALL:
        one.send("t", b"two", index=index)
    one.commit_offsets(G, "t", 6)
    one.end(commit=True)
    check(cluster, [b"one", b"two"] if commit else [b"two"], 6)


@both
def test_markers_have_the_producers_epoch_and_stand_once(cluster: Cluster, bumps: bool) -> None:
    one = begun(cluster, bumps=bumps)
    epoch = one.epoch
    one.end(commit=True)
    for index, shard in enumerate(ALL):
        expected = [(1, one.producer_id, epoch + bumps, True)]
        assert markers(cluster.nodes[shard], cluster.partition("t", index)) == expected


def test_what_lies_in_one_shard_is_one_frame_group_and_nobody_is_asked(cluster: Cluster) -> None:
    one = SpreadClient(cluster, X)
    one.init()
    one.send("t", b"one", index=COORDINATOR)
    one.commit_offsets(own := name_in(COORDINATOR, "own"), "t", 3)
    node = cluster.nodes[COORDINATOR]
    _, position = node.transactions.end(X, one.producer_id, one.epoch, commit=True, bumps=True)
    assert position == node.log.end
    cluster.run()
    assert cluster.network.asked == []
    assert cluster.committed("t", COORDINATOR) == [b"one"]
    assert cluster.offset(own, "t") == 3


def test_a_partition_joins_once(cluster: Cluster) -> None:
    one = SpreadClient(cluster, X)
    one.init()
    assert [one.send("t", b"a", index=1).asked for _ in range(3)] == [1, 0, 0]
    assert [one.commit_offsets(G, "t", at).asked for at in range(3)] == [1, 0, 0]
    assert len(cluster.network.asked) == 2
    one.end(commit=True)
    assert one.send("t", b"b", index=1).asked == 1, "in each transaction"


def test_what_comes_together_is_asked_together(cluster: Cluster) -> None:
    cluster.topic("u", [1] * 10)
    one = SpreadClient(cluster, X)
    one.init()
    node = cluster.nodes[1]
    firsts: list[AsksFirstError] = []
    for index in range(10):
        batch = transactional_batch(b"a", producer_id=one.producer_id, epoch=one.epoch, sequence=0)
        with pytest.raises(AsksFirstError) as caught:
            node.append(cluster.partition("u", index), batch, cluster.clock.wall_ms(), one.who)
        firsts.append(caught.value)
    told: list[BrokerError | None] = []
    for first in firsts:
        first.begin(told.append)
    (asked,) = cluster.network.asked
    assert isinstance(asked, JoinTransaction)
    assert [index for _, index, _ in asked.places] == list(range(10))
    cluster.run()
    assert told == [None] * 10
    firsts[0].begin(told.append)
    assert len(told) == 11, "what is known is told at once"
    assert len(cluster.network.asked) == 1


def test_the_coordinator_answers_when_it_is_durable(cluster: Cluster) -> None:
    """Also where it is in the same process, and has a log of its own."""
    one = SpreadClient(cluster, X)
    one.init()
    attempt = one.begin_send("t", b"one", index=2)
    assert (cluster.partition("t", 2).next_offset, attempt.asked) == (0, 1)
    node = cluster.nodes[COORDINATOR]
    node.write()
    assert cluster.partition("t", 2).next_offset == 0
    sync(node)
    node.settle()
    assert cluster.partition("t", 2).next_offset == 1
    cluster.run()
    assert attempt.is_durable


def test_other_shards_are_told_when_the_decision_is_durable(cluster: Cluster) -> None:
    one = begun(cluster)
    node = cluster.nodes[COORDINATOR]
    told = one.begin_end(commit=True)
    while node.relays.has_work:
        node.relays.step()
    node.write()
    assert not any(map(is_end, cluster.network.asked))
    sync(node)
    node.settle()
    assert any(map(is_end, cluster.network.asked))
    assert told == []
    cluster.run()
    assert told == [None]


def test_many_partitions_are_ended_piece_by_piece(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prepared, "MARKERS_AT_ONCE", 3)
    cluster.topic("u", [1] * 8)
    one = SpreadClient(cluster, X)
    one.init()
    for index in range(8):
        one.send("u", b"one", index=index)
    one.commit_offsets(G, "t", 9)
    cluster.network.asked.clear()
    one.end(commit=True)
    ends = [each for each in cluster.network.asked if isinstance(each, EndTransaction)]
    assert [(len(each.places), each.groups) for each in ends] == [(3, [G]), (3, []), (2, [])]
    assert [cluster.committed("u", index) for index in range(8)] == [[b"one"]] * 8
    assert cluster.offset(G, "t") == 9


# -- refusals ----------------------------------------------------------------------------------------------------------


def test_who_is_refused_and_how(cluster: Cluster) -> None:
    one = begun(cluster)
    zombie = SpreadClient(cluster, X)
    zombie.producer_id, zombie.epoch = one.producer_id, one.epoch
    one.end(commit=True)
    for index in ALL:
        attempt = zombie.begin_send("t", b"late", index=index)
        cluster.run()
        assert attempt.fault is Fault.INVALID_PRODUCER_EPOCH
    attempt = zombie.begin_commit_offsets(G, "t", 99)
    cluster.run()
    assert attempt.fault is Fault.PRODUCER_FENCED
    stranger = SpreadClient(cluster, X)
    stranger.producer_id, stranger.epoch = one.producer_id + 5, 0
    attempt = stranger.begin_send("t", b"mine", index=1)
    cluster.run()
    assert attempt.fault is Fault.INVALID_PRODUCER_ID_MAPPING
    check(cluster, [b"one"], 5)


def test_what_was_not_added_is_refused_to_who_has_to_add_it(cluster: Cluster) -> None:
    one = SpreadClient(cluster, X, bumps=False)
    one.init()
    one.send("t", b"one", index=1)
    one.added |= {("t", 3), G}
    attempt = one.begin_send("t", b"one", index=3)
    cluster.run()
    assert attempt.fault is Fault.TRANSACTION_ABORTABLE
    assert "t-3" in str(attempt.error)
    attempt = one.begin_commit_offsets(G, "t", 5)
    cluster.run()
    assert attempt.fault is Fault.TRANSACTION_ABORTABLE
    one.end(commit=False)
    assert cluster.partition("t", 3).next_offset == 0


def test_what_begins_amid_a_sequence_is_refused(cluster: Cluster) -> None:
    one = SpreadClient(cluster, X)
    one.init()
    one.sequences["t", 1] = 7
    attempt = one.begin_send("t", b"one", index=1)
    cluster.run()
    assert attempt.fault is Fault.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert cluster.nodes[COORDINATOR].state.transactions.by_name[X].partitions == {}


def test_a_fault_that_the_next_version_will_have_is_a_refusal_all_the_same(cluster: Cluster) -> None:
    one = SpreadClient(cluster, X)
    one.init()

    def refuse(_question: JoinTransaction, told: Callable[[object], None]) -> None:
        told(TransactionJoined(0, [(0, "A_FAULT_THAT_THERE_WILL_BE")]))

    cluster.answers[COORDINATOR][JoinTransaction] = refuse
    attempt = one.begin_send("t", b"one", index=1)
    cluster.run()
    assert attempt.fault is Fault.NOT_ENOUGH_REPLICAS, "it is sent again: this process may be of the next version then"


def test_somebody_elses_open_transaction_is_not_gone_on_with(cluster: Cluster) -> None:
    """Whoever names another transactional id may not write as the producer of this one."""
    one = begun(cluster)
    other = SpreadClient(cluster, name_in(2))
    other.init()
    other.producer_id, other.epoch = one.producer_id, one.epoch
    other.sequences["t", 1] = 1
    attempt = other.begin_send("t", b"forged", index=1)
    cluster.run()
    assert attempt.fault is Fault.INVALID_PRODUCER_ID_MAPPING
    one.end(commit=True)
    check(cluster, [b"one"], 5)


@both
def test_who_asks_while_it_ends_is_told_to_ask_again(cluster: Cluster, bumps: bool) -> None:
    one = begun(cluster, bumps=bumps)
    cluster.network.held = {(ITS_PROCESS, OTHER_PROCESS)}
    told = one.begin_end(commit=True)
    cluster.run()
    assert told == []
    entry = cluster.nodes[COORDINATOR].state.transactions.by_name[X]
    assert entry.state is TransactionState.PREPARE_COMMIT
    for ask in (
        lambda: one.coordinator.transactions.init_producer_id(X, 60_000, None),
        lambda: one.begin_end(commit=True),
    ):
        with pytest.raises(BrokerError) as caught:
            ask()
        assert caught.value.fault is Fault.CONCURRENT_TRANSACTIONS
    late = SpreadClient(cluster, X, bumps=bumps)
    late.producer_id, late.epoch = one.producer_id, one.epoch + bumps
    late.added.add(("t", 2))
    attempt = late.begin_send("t", b"late", index=2)
    cluster.run()
    assert attempt.fault is (Fault.CONCURRENT_TRANSACTIONS if bumps else Fault.NOT_ENOUGH_REPLICAS)
    cluster.network.held = set()
    cluster.run()
    assert told == [None]
    check(cluster, [b"one"], 5)


# -- what is lost, late, or comes twice --------------------------------------------------------------------------------


@pytest.mark.parametrize("fate", ["question", "answer", "silence", "twice"])
@both
def test_a_question_that_does_not_come_through(cluster: Cluster, fate: str, bumps: bool) -> None:
    one = begun(cluster, bumps=bumps)
    fates = {"join": fate}

    def lost(question: Question) -> str:
        return fates.pop("join", "") if is_join(question) else ""

    one.end(commit=True)
    cluster.network.lost = lost
    attempt = one.begin_send("t", b"two", index=1)
    cluster.run()
    if fate == "twice":
        assert attempt.is_durable
    else:
        if fate == "silence":
            assert attempt.fault is None
            cluster.pass_time(remote.UNANSWERED_MS)
        assert attempt.fault is Fault.NOT_ENOUGH_REPLICAS, "which producers try again after"
        one.sequences["t", 1] -= 1
        one.send("t", b"two", index=1)
    attempt = one.begin_commit_offsets(G, "t", 6)
    fates["join"] = fate
    attempt = one.begin_commit_offsets(name_in(3, "h"), "t", 6)
    cluster.run()
    if fate == "silence":
        cluster.pass_time(remote.UNANSWERED_MS)
    assert attempt.fault is (None if fate == "twice" else Fault.COORDINATOR_NOT_AVAILABLE)
    one.end(commit=True)
    assert [cluster.committed("t", index) for index in ALL] == [[b"one"], [b"one", b"two"], [b"one"], [b"one"]]
    assert cluster.offset(G, "t") == 6


@pytest.mark.parametrize("fate", ["question", "answer", "silence", "twice"])
@pytest.mark.parametrize("times", [1, 3])
@both
@either
def test_an_end_is_asked_until_it_is_answered(
    cluster: Cluster, fate: str, times: int, bumps: bool, commit: bool
) -> None:
    one = begun(cluster, bumps=bumps)
    left = [times]

    def lost(question: Question) -> str:
        if not is_end(question) or not left[0]:
            return ""
        left[0] -= 1
        return fate

    cluster.network.lost = lost
    told = one.begin_end(commit=commit)
    cluster.run()
    for _ in range(2 * times):
        cluster.pass_time(prepared.UNANSWERED_MS)
    assert told == [None]
    check(cluster, [b"one"] if commit else [], 5 if commit else None)
    for index in ALL:
        assert len(markers(cluster.nodes[index], cluster.partition("t", index))) == 1


def test_a_shard_that_cannot_be_reached_holds_up_only_what_lies_there(cluster: Cluster) -> None:
    one = begun(cluster)
    other = SpreadClient(cluster, name_in(COORDINATOR, "y"))
    other.init()
    for index in (0, 2):
        other.send("t", b"other", index=index)
    third = SpreadClient(cluster, name_in(COORDINATOR, "z"))
    third.init()
    third.send("t", b"third", index=1)
    cluster.kill(OTHER_PROCESS)
    tolds = [each.begin_end(commit=True) for each in (one, other, third)]
    cluster.run()
    cluster.pass_time(60_000)
    assert tolds == [[], [None], []]
    cluster.start(OTHER_PROCESS)
    cluster.run()
    assert tolds == [[], [None], []]
    cluster.pass_time(prepared.ASK_AGAIN_MS)
    assert tolds == [[None]] * 3
    assert cluster.committed("t", 1) == [b"one", b"third"]
    assert cluster.committed("t", 2) == [b"one", b"other"]


def test_an_answer_that_comes_after_the_marker_lets_nobody_in(cluster: Cluster) -> None:
    """The coordinator lets a partition join, decides the end, and its marker overtakes the answer."""
    one = SpreadClient(cluster, X)
    one.init()
    one.send("t", b"one", index=0)
    attempt = one.begin_send("t", b"late", index=1)
    asked = len(cluster.network.asked)
    cluster.network.held = {(ITS_PROCESS, OTHER_PROCESS)}
    cluster.run()  # it has joined, and the answer is under way
    lane = cluster.network.lanes[ITS_PROCESS, OTHER_PROCESS]
    (answer,) = lane
    lane.clear()
    cluster.network.held = set()
    told = one.begin_end(commit=False)
    cluster.run()
    assert told == [None]
    lane.append(answer)
    cluster.run()
    assert len([each for each in cluster.network.asked[asked:] if is_join(each)]) == 1, "it is asked anew"
    assert attempt.fault is Fault.INVALID_PRODUCER_EPOCH
    assert cluster.partition("t", 1).next_offset == 0
    assert cluster.is_decided("t", 1)


def test_an_end_that_comes_again_ends_nothing_that_began_later(cluster: Cluster) -> None:
    """Also where the producer's epoch is not raised, and the next transaction has the same."""
    one = begun(cluster, bumps=False)
    cluster.network.asked.clear()
    one.end(commit=True)
    ends = [each for each in cluster.network.asked if isinstance(each, EndTransaction)]
    for index in ALL:
        one.send("t", b"two", index=index)
    one.commit_offsets(G, "t", 6)
    for asked in ends:
        for shard in ALL:
            told: list[object] = []
            cluster.network.ask(1 - cluster.worker_of(shard), shard, asked, told.append)
            cluster.run()
            assert len(told) == 1
    assert [cluster.is_decided("t", index) for index in ALL] == [False] * 4
    assert cluster.unstable(G) == 1
    one.end(commit=False)
    check(cluster, [b"one"], 5)


def test_an_older_coordinator_is_refused(cluster: Cluster) -> None:
    one = begun(cluster)
    shard = 1
    place = cluster.partition("t", shard).topic.number, shard
    old = End(
        COORDINATOR, cluster.nodes[COORDINATOR].generation, 1 << 60, one.producer_id, one.epoch, one.epoch + 1, True,
        [place], [G],
    )  # fmt: skip
    cluster.restart(ITS_PROCESS)
    cluster.run()
    with pytest.raises(BrokerError) as caught:
        cluster.nodes[shard].transactions.end_here(old)
    assert caught.value.fault is Fault.NOT_COORDINATOR
    assert not cluster.is_decided("t", shard)
    one.end(commit=False)
    check(cluster, [], None)


def test_a_coordinator_that_was_heard_of_in_person_fences_the_one_before(cluster: Cluster) -> None:
    """The shared catalog may tell of it later."""
    node = cluster.nodes[1]
    present = cluster.nodes[COORDINATOR].generation

    def end(generation: int) -> None:
        node.transactions.end_here(End(COORDINATOR, generation, 1, 7, 0, 1, True, [], []))

    end(present)
    end(present + 1)
    with pytest.raises(BrokerError):
        end(present)


# -- time --------------------------------------------------------------------------------------------------------------


@both
def test_what_has_taken_too_long_is_aborted_everywhere(cluster: Cluster, bumps: bool) -> None:
    one = begun(cluster, bumps=bumps)
    waiting = one.begin_send("t", b"late", index=3)
    cluster.pass_time(one.timeout_ms)
    assert waiting.is_durable
    check(cluster, [], None)
    assert cluster.nodes[COORDINATOR].transactions.timed_out == 1
    attempt = one.begin_send("t", b"later", index=3)
    cluster.run()
    assert attempt.fault is Fault.INVALID_PRODUCER_EPOCH


def test_it_times_out_while_a_shard_waits_for_the_coordinator(cluster: Cluster) -> None:
    one = SpreadClient(cluster, X, timeout_ms=1_000)
    one.init()
    one.send("t", b"one", index=0)
    cluster.network.held = {(OTHER_PROCESS, ITS_PROCESS)}
    attempt = one.begin_send("t", b"late", index=1)
    cluster.pass_time(1_000)
    cluster.network.held = set()
    cluster.run()
    assert attempt.fault is Fault.INVALID_PRODUCER_EPOCH
    assert cluster.is_decided("t", 0)
    assert cluster.partition("t", 1).next_offset == 0


def test_whoever_takes_the_id_over_ends_what_was_open(cluster: Cluster) -> None:
    one, other = begun(cluster), SpreadClient(cluster, X)
    with pytest.raises(BrokerError) as caught:
        other.init()
    assert caught.value.fault is Fault.CONCURRENT_TRANSACTIONS
    cluster.run()
    other.init()
    assert other.epoch == one.epoch + 2
    check(cluster, [], None)


def test_an_exhausted_producer_id(cluster: Cluster) -> None:
    one = SpreadClient(cluster, X)
    one.init()
    node = cluster.nodes[COORDINATOR]
    node.append_control(
        control.TransactionalIdInitialized(X, Identity(one.producer_id, LAST_EPOCH), 60_000, node.clock.wall_ms())
    )
    one.epoch = LAST_EPOCH
    one.send("t", b"one", index=1)
    one.end(commit=True)
    assert one.epoch == 0
    assert cluster.committed("t", 1) == [b"one"]
    one.send("t", b"two", index=1)
    one.end(commit=True)
    assert cluster.committed("t", 1) == [b"one", b"two"]


# -- topics and groups that go -----------------------------------------------------------------------------------------


def test_a_topic_that_goes_meanwhile(cluster: Cluster) -> None:
    cluster.topic("u", ALL)
    one = begun(cluster)
    for index in ALL:
        one.send("u", b"one", index=index)
    number = cluster.shared.catalog.by_name["u"].number
    cluster.apply(control.TopicDeleted(number))
    one.end(commit=True)
    check(cluster, [b"one"], 5)


def test_a_transaction_of_which_nothing_is_left(cluster: Cluster) -> None:
    cluster.topic("u", [1])
    one = SpreadClient(cluster, X)
    one.init()
    one.send("u", b"one")
    cluster.apply(control.TopicDeleted(cluster.shared.catalog.by_name["u"].number))
    cluster.kill(OTHER_PROCESS)
    one.end(commit=True)


def test_a_partition_that_the_coordinator_does_not_know_yet(cluster: Cluster) -> None:
    """Another process has made the topic. It is ended there all the same, once it is known where that is."""
    cluster.topic("u", [1, 3])
    one = SpreadClient(cluster, X)
    one.init()
    one.send("u", b"one", index=0)
    one.send("u", b"one", index=1)
    number = cluster.shared.catalog.by_name["u"].number
    known = cluster.shared.placements.pop(number)
    cluster.shared.catalog.next_topic_number = number
    told = one.begin_end(commit=True)
    cluster.run()
    assert told == []
    cluster.shared.placements[number] = known[:1]
    cluster.pass_time(prepared.ASK_AGAIN_MS)
    assert told == []
    cluster.shared.placements[number] = known
    cluster.pass_time(prepared.ASK_AGAIN_MS)
    assert told == [None]
    assert [cluster.committed("u", index) for index in (0, 1)] == [[b"one"]] * 2


def test_a_group_that_is_deleted_meanwhile(cluster: Cluster) -> None:
    one = begun(cluster)
    cluster.coordinator(G).append_control(control.GroupDeleted(G))
    assert cluster.unstable(G) == 0
    one.end(commit=True)
    check(cluster, [b"one"], None)


def test_an_operator_ends_what_hangs_in_one_partition(cluster: Cluster) -> None:
    one = begun(cluster)
    partition = cluster.partition("t", 1)
    cluster.nodes[1].transactions.abort_in(partition, one.producer_id, one.epoch)
    cluster.run()
    assert cluster.is_decided("t", 1)
    assert cluster.committed("t", 1) == []
    one.end(commit=True)
    assert [cluster.committed("t", index) for index in ALL] == [[b"one"], [], [b"one"], [b"one"]]


def test_notes_that_nobody_needs_are_forgotten(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "SWEPT", 8)
    one = SpreadClient(cluster, X)
    one.init()
    one.send("t", b"one", index=1)
    one.commit_offsets(G, "t", 5)
    service = cluster.nodes[1].transactions._remote
    assert service is not None
    service._sweep_at = 8
    for at in range(50):
        cluster.topic(f"u{at}", [1])
        one.send(f"u{at}", b"one")
        cluster.apply(control.TopicDeleted(cluster.shared.catalog.by_name[f"u{at}"].number))
    assert len(service._notes) < 20
    assert one.send("t", b"two", index=1).asked == 0
    assert one.commit_offsets(G, "t", 6).asked == 0
    one.end(commit=True)
    assert cluster.committed("t", 1) == [b"one", b"two"]


# -- a disk that is full -----------------------------------------------------------------------------------------------


def test_a_shard_whose_disk_is_full_is_asked_until_it_is_not(cluster: Cluster) -> None:
    one = begun(cluster)
    node = cluster.nodes[1]
    fill(node, cluster.fs[1])
    told = one.begin_end(commit=True)
    cluster.run()
    cluster.pass_time(prepared.ASK_AGAIN_MS)
    assert told == []
    cluster.fs[1].free = 1 << 40
    node.housekeeping.plan()
    cluster.pass_time(60_000)
    assert told == [None]
    check(cluster, [b"one"], 5)


# -- after a restart ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["kill", "checkpoint", "derived files lost", "clean stop"])
@either
def test_offsets_of_other_shards_transactions_are_kept(cluster: Cluster, how: str, commit: bool) -> None:
    one = begun(cluster)
    for shard in cluster.shards_of(OTHER_PROCESS):
        node = cluster.nodes[shard]
        if how == "clean stop":
            node.close()
        elif how != "kill":
            node.housekeeping.freeze()
            cluster.run()
    cluster.kill(OTHER_PROCESS)
    if how == "derived files lost":
        for shard in cluster.shards_of(OTHER_PROCESS):
            lose_derived(cluster.fs[shard])
    cluster.start(OTHER_PROCESS)
    cluster.run()
    assert cluster.unstable(G) == 1
    one.commit_offsets(G, "t", 6)
    one.end(commit=commit)
    check(cluster, [b"one"] if commit else [], 6 if commit else None)


@both
def test_after_a_restart_an_old_end_ends_nothing_either(cluster: Cluster, bumps: bool) -> None:
    """Of a partition this is known by the epoch, where that is raised; of a group always."""
    one = begun(cluster, bumps=bumps)
    cluster.network.asked.clear()
    one.end(commit=True)
    ends = [each for each in cluster.network.asked if isinstance(each, EndTransaction)]
    one.send("t", b"two", index=1)
    one.commit_offsets(G, "t", 6)
    cluster.restart(OTHER_PROCESS)
    cluster.run()
    for asked in ends:
        told: list[object] = []
        cluster.network.ask(ITS_PROCESS, 1, asked if bumps else replace(asked, places=[]), told.append)
        cluster.run()
    assert not cluster.is_decided("t", 1)
    assert cluster.unstable(G) == 1
    one.end(commit=True)
    check_one = [b"one", b"two"], 6
    assert (cluster.committed("t", 1), cluster.offset(G, "t")) == check_one


def test_an_answer_to_what_was_asked_twice_counts_once(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prepared, "MARKERS_AT_ONCE", 1)
    cluster.topic("u", [1, 1, 1])
    one = SpreadClient(cluster, X)
    one.init()
    for index in range(3):
        one.send("u", b"one", index=index)
    cluster.network.held = {(OTHER_PROCESS, ITS_PROCESS)}
    told = one.begin_end(commit=True)
    cluster.run()
    cluster.pass_time(prepared.UNANSWERED_MS)
    assert len([each for each in cluster.network.asked if is_end(each)]) == 2
    lane = cluster.network.lanes[OTHER_PROCESS, ITS_PROCESS]
    lane.popleft()()
    lane.popleft()()
    assert len([each for each in cluster.network.asked if is_end(each)]) == 3
    cluster.network.held = set()
    cluster.run()
    assert told == [None]
    assert [cluster.committed("u", index) for index in range(3)] == [[b"one"]] * 3


def test_an_epoch_that_nobody_has_given_is_refused(cluster: Cluster) -> None:
    one = begun(cluster)
    liar = SpreadClient(cluster, X)
    liar.producer_id, liar.epoch = one.producer_id, one.epoch + 5
    attempt = liar.begin_send("t", b"ahead", index=1)
    cluster.run()
    assert attempt.fault is Fault.INVALID_PRODUCER_EPOCH
    one.end(commit=True)
    check(cluster, [b"one"], 5)


def test_what_another_shard_coordinates_is_left_to_it_at_a_start(cluster: Cluster) -> None:
    one = begun(cluster)
    cluster.restart(OTHER_PROCESS)
    cluster.restart(ITS_PROCESS)
    cluster.run()
    assert [cluster.is_decided("t", index) for index in ALL] == [False] * 4
    one.end(commit=True)
    check(cluster, [b"one"], 5)


# -- a shard that goes to another process ------------------------------------------------------------------------------


def test_whoever_waits_in_a_shard_that_goes_is_told_so(cluster: Cluster) -> None:
    one = SpreadClient(cluster, X)
    one.init()
    node = cluster.nodes[1]
    cluster.network.held = {(ITS_PROCESS, OTHER_PROCESS)}
    waiting = [one.begin_commit_offsets(G, "t", 5), one.begin_send("t", b"one", index=1)]
    cluster.run()
    end, next_offset = node.log.end, cluster.partition("t", 1).next_offset
    send_away(node)
    assert [attempt.fault for attempt in waiting] == [Fault.NOT_COORDINATOR, Fault.NOT_LEADER_OR_FOLLOWER]
    assert one.begin_commit_offsets(G, "t", 5).fault is Fault.NOT_COORDINATOR
    cluster.network.held = set()
    cluster.run()
    assert (node.log.end, cluster.partition("t", 1).next_offset) == (end, next_offset)
    assert node.transactions.next_deadline() is None


def test_a_shard_that_goes_asks_nobody_any_more(cluster: Cluster) -> None:
    one = SpreadClient(cluster, X)
    one.init()
    node = cluster.nodes[1]
    batch = transactional_batch(b"a", producer_id=one.producer_id, epoch=one.epoch, sequence=0)
    with pytest.raises(AsksFirstError) as caught:
        node.append(cluster.partition("t", 1), batch, node.clock.wall_ms(), one.who)
    send_away(node)
    told: list[BrokerError | None] = []
    caught.value.begin(told.append)
    assert [error and error.fault for error in told] == [Fault.NOT_LEADER_OR_FOLLOWER]
    assert cluster.network.asked == []


@pytest.mark.parametrize("is_reached", [True, False])
def test_in_a_shard_that_goes_nothing_is_ended_that_was_in_doubt(cluster: Cluster, is_reached: bool) -> None:
    one = begun(cluster)
    copies = copied(cluster, OTHER_PROCESS)
    one.end(commit=True)
    cluster.network.held = {(ITS_PROCESS, OTHER_PROCESS)}
    go_back(cluster, OTHER_PROCESS, copies)
    cluster.run()
    node = cluster.nodes[1]
    end = node.log.end
    send_away(node)
    cluster.network.held = set()
    if not is_reached:
        cluster.kill(ITS_PROCESS)
    cluster.run()
    assert node.log.end == end
    assert not cluster.is_decided("t", 1)
    assert node.transactions.next_deadline() is None
    assert cluster.is_decided("t", 3) is is_reached, "a shard that stays hears it"


def send_away(node: BareNode) -> None:
    node.appender.leaves = True
    node.transactions.send_away()


# -- shards of different moments ---------------------------------------------------------------------------------------


def go_back(cluster: Cluster, worker: int, copies: dict[int, FaultyFileSystem]) -> None:
    """A process is started from copies of its shards: from a backup, or with the end of its logs lost."""
    cluster.kill(worker)
    for shard, fs in copies.items():
        cluster.fs[shard] = fs.kill()
    cluster.start(worker)


def copied(cluster: Cluster, worker: int) -> dict[int, FaultyFileSystem]:
    return {shard: deepcopy(cluster.fs[shard]) for shard in cluster.shards_of(worker)}


@both
@either
def test_a_shard_that_has_lost_the_end_asks_how_it_was(cluster: Cluster, bumps: bool, commit: bool) -> None:
    one = begun(cluster, bumps=bumps)
    copies = copied(cluster, OTHER_PROCESS)
    one.end(commit=commit)
    go_back(cluster, OTHER_PROCESS, copies)
    assert not cluster.is_decided("t", 1)
    cluster.run()
    check(cluster, [b"one"] if commit else [], 5 if commit else None)


def test_until_it_has_been_told_the_producers_next_transaction_waits(cluster: Cluster) -> None:
    """Else it would be taken for the same, and what was aborted would be committed with it. (Where the epoch is not
    raised with each end, a transaction that the coordinator has begun by then looks like the one before.)"""
    one = begun(cluster)
    copies = copied(cluster, OTHER_PROCESS)
    one.end(commit=False)
    cluster.network.held = {(OTHER_PROCESS, ITS_PROCESS)}
    go_back(cluster, OTHER_PROCESS, copies)
    sequences = dict(one.sequences)
    assert one.begin_send("t", b"two", index=1).fault is Fault.NOT_ENOUGH_REPLICAS
    one.sequences = sequences
    assert one.begin_commit_offsets(G, "t", 7).fault is Fault.COORDINATOR_NOT_AVAILABLE
    cluster.network.held = set()
    cluster.run()
    assert cluster.is_decided("t", 1)
    one.send("t", b"two", index=1)
    one.commit_offsets(G, "t", 7)
    one.end(commit=True)
    assert cluster.committed("t", 1) == [b"two"]
    assert (cluster.offset(G, "t"), cluster.unstable(G)) == (7, 0)


def test_a_coordinator_that_cannot_be_reached_is_asked_again(cluster: Cluster) -> None:
    one = begun(cluster)
    copies = copied(cluster, OTHER_PROCESS)
    one.end(commit=True)
    cluster.kill(ITS_PROCESS)
    go_back(cluster, OTHER_PROCESS, copies)
    cluster.run()
    cluster.pass_time(doubts.ASK_AGAIN_MS)
    assert not cluster.is_decided("t", 1)
    cluster.start(ITS_PROCESS)
    cluster.pass_time(doubts.ASK_AGAIN_MS)
    check(cluster, [b"one"], 5)
    assert all(node.transactions.next_deadline() is None for node in cluster.nodes.values())


def test_what_the_coordinator_has_lost_is_aborted(cluster: Cluster) -> None:
    one = SpreadClient(cluster, X)
    one.init()
    one.send("t", b"one", index=0)
    copies = copied(cluster, ITS_PROCESS)
    one.send("t", b"one", index=1)
    one.commit_offsets(G, "t", 5)
    cluster.kill(OTHER_PROCESS)
    go_back(cluster, ITS_PROCESS, copies)
    cluster.start(OTHER_PROCESS)
    cluster.run()
    assert cluster.is_decided("t", 1)
    assert cluster.committed("t", 1) == []
    assert (cluster.offset(G, "t"), cluster.unstable(G)) == (None, 0)
    one.end(commit=True)
    assert cluster.committed("t", 0) == [b"one"]


def test_an_operator_may_be_quicker(cluster: Cluster) -> None:
    one = begun(cluster)
    copies = copied(cluster, OTHER_PROCESS)
    one.end(commit=True)
    cluster.network.held = {(OTHER_PROCESS, ITS_PROCESS)}
    go_back(cluster, OTHER_PROCESS, copies)
    node = cluster.nodes[1]
    node.transactions.abort_in(cluster.partition("t", 1), one.producer_id, one.epoch)
    cluster.network.held = set()
    cluster.run()
    assert cluster.committed("t", 1) == []
    assert cluster.committed("t", 3) == [b"one"]


def test_a_producer_id_that_no_shard_has_given(cluster: Cluster) -> None:
    shards = cluster.nodes[1].transactions._remote
    assert shards is not None
    told: list[object] = []
    asked = [Doubt(99 << 40, 0, 1, 0, ""), Doubt(99 << 40, 0, -1, -1, "g")]
    shards._shards.doubt(99, asked, told.append)
    assert told == [[Outcome.ABORTED] * 2]
