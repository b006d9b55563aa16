"""ShareFetch and ShareAcknowledge: waiting, sessions and their ends, threads, limits."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from kafka_rig import Rig
from share_rig import (
    ACCEPT,
    RELEASE,
    Member,
    acquired,
    cold_rig,
    go_cold,
    locked,
    offsets,
    produce,
    read_disk,
    transaction,
)

from halfmoon.adapters.kafka.protocol import ShareFetchRequest
from halfmoon.services.share.delivery import LOOKS
from halfmoon.testing.node import BareNode
from tests.core.bench import batch
from tests.services.transactions.transaction_bench import TxnClient


def acknowledge_code(answer: Any) -> int:
    (part,) = answer.responses[0].partitions
    return int(part.error_code)


@pytest.fixture
def rig() -> Rig:
    made = Rig(groups__share__auto_offset_reset="earliest", groups__share__max_sessions=3)
    made.broker.create_topic("t", 3)
    return made


def pass_time(rig: Rig, ms: int) -> None:
    rig.clock.now_ms += ms
    broker: BareNode = rig.broker
    broker.hold.expire(rig.clock.now_ms)
    broker.shares.expire(rig.clock.now_ms)
    rig.turn()


def test_a_fetch_waits_for_records(rig: Rig) -> None:
    member = Member(rig, "a")
    member.send()
    assert member.answer() is None
    produce(rig, 3)
    assert acquired(member.answer()) == [(0, 2, 1)]


def test_a_fetch_ends_empty_when_its_time_is_over(rig: Rig) -> None:
    member = Member(rig, "a")
    member.send()
    pass_time(rig, 499)
    assert member.answer() is None
    pass_time(rig, 1)
    assert acquired(member.answer()) == []


def test_a_fetch_waits_for_so_many_bytes(rig: Rig) -> None:
    member = Member(rig, "a")
    produce(rig, 1)
    member.send(min_bytes=130)
    assert member.answer() is None
    produce(rig, 1)
    assert acquired(member.answer()) == [(0, 1, 1)]
    produce(rig, 1)
    member.send(named=False, min_bytes=130)
    pass_time(rig, 500)
    assert acquired(member.answer()) == [(2, 2, 1)]


def test_a_fetch_of_no_bytes_waits_and_gets_nothing(rig: Rig) -> None:
    member = Member(rig, "a")
    produce(rig, 1)
    member.send(max_bytes=0)
    pass_time(rig, 499)
    assert member.answer() is None
    pass_time(rig, 1)
    assert acquired(member.answer()) == []
    member.send(named=False)
    assert acquired(member.answer()) == [(0, 0, 1)]


def test_of_two_that_wait_one_gets_the_records_and_the_other_waits_on(rig: Rig) -> None:
    first, second = Member(rig, "a"), Member(rig, "b")
    first.send()
    pass_time(rig, 100)
    second.send()
    produce(rig, 2)
    assert acquired(first.answer()) == [(0, 1, 1)]
    assert second.answer() is None
    pass_time(rig, 499)
    assert second.answer() is None
    pass_time(rig, 1)
    assert acquired(second.answer()) == []


def test_who_waits_gets_what_another_releases(rig: Rig) -> None:
    first, second = Member(rig, "a"), Member(rig, "b")
    produce(rig, 3)
    assert first.fetch() == [(0, 2, 1)]
    second.send()
    assert second.answer() is None
    first.acknowledge(1, 1, RELEASE)
    assert acquired(second.answer()) == [(1, 1, 2)]


def test_who_waits_gets_what_another_has_held_for_too_long(rig: Rig) -> None:
    first, second = Member(rig, "a"), Member(rig, "b")
    produce(rig, 1)
    first.fetch()
    pass_time(rig, 29_900)
    second.send()
    pass_time(rig, 100)
    assert acquired(second.answer()) == [(0, 0, 2)]


def test_who_waits_gets_what_was_held_by_a_connection_that_is_gone(rig: Rig) -> None:
    first, second = Member(rig, "a"), Member(rig, "b")
    produce(rig, 2)
    first.fetch()
    second.send()
    first.client.connection.connection_lost(None)
    rig.turn()
    assert acquired(second.answer()) == [(0, 1, 2)]
    assert len(rig.broker.shares.sessions) == 1


def test_another_request_ends_the_waiting(rig: Rig) -> None:
    member = Member(rig, "a")
    member.send()
    member.client.feed(member.client.encode(18, 0))
    rig.turn()
    assert acquired(member.client.answers()[0]) == []


def test_a_session_that_begins_anew_leaves_the_member_what_it_holds(rig: Rig) -> None:
    """A client begins anew after an error, while its records are being worked on."""
    member = Member(rig, "a")
    produce(rig, 2)
    assert member.fetch() == [(0, 1, 1)]
    member.epoch = 0
    assert member.fetch() == []
    assert acknowledge_code(member.acknowledge(0, 0, ACCEPT)) == 0
    member.client.connection.connection_lost(None)
    rig.turn()
    assert Member(rig, "b").fetch() == [(1, 1, 2)]


def test_a_parked_fetch_of_a_session_that_is_gone_gets_nothing(rig: Rig) -> None:
    member = Member(rig, "a")
    member.send()
    other = Member(rig, "a")  # the same member, on another connection
    assert other.fetch() == []
    produce(rig, 1)
    assert acquired(member.answer()) == []
    assert other.fetch(named=False) == [(0, 0, 1)]


def test_the_end_of_a_session_gives_back_what_is_not_acknowledged(rig: Rig) -> None:
    first, second = Member(rig, "a"), Member(rig, "b")
    produce(rig, 3)
    first.fetch()
    assert acknowledge_code(first.acknowledge(0, 0, ACCEPT, epoch=-1)) == 0
    assert second.fetch() == [(1, 2, 2)]


def test_forgotten_partitions_are_fetched_no_more(rig: Rig) -> None:
    member = Member(rig, "a")
    member.fetch()
    produce(rig, 1)
    forgotten = [ShareFetchRequest.ForgottenTopic(topic_id=member.topic_id, partitions=[0])]
    assert member.fetch(named=False, forgotten_topics_data=forgotten) == []


def test_partitions_take_turns_in_being_the_first(rig: Rig) -> None:
    member = Member(rig, "a")
    for index in range(3):
        member.fetch(index=index)
    for index in range(3):
        produce(rig, 4, index)
    found = []
    for _ in range(3):
        member.send(named=False, max_records=4, max_wait_ms=0)
        found += [part.partition_index for topic in member.answer().responses for part in topic.partitions]
    assert sorted(found) == [0, 1, 2]


def test_there_are_so_many_sessions(rig: Rig) -> None:
    for name in "abc":
        Member(rig, name).fetch()
    member = Member(rig, "d")
    member.send()
    assert member.answer().error_code == 133


def test_acknowledgements_are_durable_before_the_answer(rig: Rig) -> None:
    member = Member(rig, "a")
    produce(rig, 2)
    member.fetch()
    rig.broker.log.failed = OSError("no more")
    member.send((0, 1, ACCEPT), max_wait_ms=0)
    (part,) = member.answer().responses[0].partitions
    assert part.acknowledge_error_code == 56
    rig.broker.log.failed = None
    assert member.fetch((0, 1, ACCEPT)) == []
    assert rig.broker.shares.delivery.parts.of_group("g")[0].start == 2


def test_internal_topics_are_closed(rig: Rig) -> None:
    rig.broker.create_topic("inside", 1, internal=True)
    member = Member(rig, "a")
    inside = rig.broker.topic("inside")
    assert inside is not None
    member.topic_id = uuid.UUID(bytes=inside.id)
    member.send(max_wait_ms=0)
    (part,) = member.answer().responses[0].partitions
    assert part.error_code == 29


def test_cold_records_are_read_in_a_thread() -> None:
    rig = Rig(groups__share__auto_offset_reset="earliest", log__hot_bytes=0)
    rig.broker.create_topic("t", 3)
    produce(rig, 2)
    rig.broker.housekeeping.plan()
    rig.fs.cold = True
    member = Member(rig, "a")
    member.send()
    rig.loop.run_threads()
    rig.turn()
    assert acquired(member.answer()) == [(0, 1, 1)]


def test_a_group_that_begins_a_while_ago_looks_for_that_in_a_thread() -> None:
    rig = Rig(groups__share__auto_offset_reset="by_duration:PT1H")
    rig.broker.create_topic("t", 3)
    produce(rig, 2)  # of 1970
    topic = rig.broker.topic("t")
    assert topic is not None
    rig.broker.append(topic.partitions[0], batch(b"new", timestamp=rig.clock.now_ms), rig.clock.now_ms)
    rig.turn()
    member = Member(rig, "a")
    member.send()
    assert member.answer() is None
    rig.loop.run_threads()
    rig.turn()
    assert acquired(member.answer()) == [(2, 2, 1)]


# -- what is told and what is locked -----------------------------------------------------------------------------------


def drain(rig: Rig, member: Member, **fields: Any) -> list[int]:
    """Fetch and accept until nothing comes; all that is told is locked, and nothing else."""
    found: list[int] = []
    empty = 0
    while empty < 3:
        member.send(named=not found, max_wait_ms=0, **fields)
        read_disk(rig)
        told = acquired(member.answer())
        assert offsets(told) == locked(rig)
        for first, last, _ in told:
            member.acknowledge(first, last, ACCEPT)
        found += offsets(told)
        empty = 0 if told else empty + 1
    return found


def test_cold_transactions_are_told_as_they_are_locked() -> None:
    """The first look finds fewer records than are wanted: half of the window are markers."""
    rig = cold_rig()
    for number in range(20):
        transaction(rig, b"%d" % number)
    go_cold(rig)
    assert drain(rig, Member(rig, "a"), max_records=10) == list(range(0, 40, 2))


@pytest.mark.parametrize("max_bytes", [1_500, 3_000])
def test_cold_records_that_max_bytes_cuts_are_told_as_they_are_locked(max_bytes: int) -> None:
    rig = cold_rig()
    for _ in range(4):
        topic = rig.broker.topic("t")
        assert topic is not None
        rig.broker.append(topic.partitions[0], batch(b"v" * 1000), 1000)
        rig.turn()
    go_cold(rig)
    assert drain(rig, Member(rig, "a"), max_bytes=max_bytes) == [0, 1, 2, 3]


def test_what_comes_while_the_disk_is_read_is_for_the_next_fetch() -> None:
    rig = cold_rig()
    produce(rig, 2)
    go_cold(rig)
    member = Member(rig, "a")
    member.send()
    produce(rig, 1)
    read_disk(rig)
    assert acquired(member.answer()) == [(0, 1, 1)]
    assert locked(rig) == [0, 1]


def test_a_hot_partition_beside_a_cold_one_is_looked_at_once() -> None:
    rig = cold_rig(2, log__hot_bytes=4_000)
    topic = rig.broker.topic("t")
    assert topic is not None
    rig.broker.append(topic.partitions[1], batch(b"v" * 4_000), 1000)
    produce(rig, 2, 0)  # the end of the log, which is hot
    go_cold(rig)
    member = Member(rig, "a")
    for index in range(2):
        member.send(index=index, max_records=0)
        member.answer()
    member.send(named=False)
    assert locked(rig) == [0, 1]
    produce(rig, 1, 0)
    read_disk(rig)
    told = acquired(member.answer())
    assert sorted(offsets(told)) == sorted(locked(rig)) == [0, 0, 1]


def test_all_that_is_read_from_disk_at_once_keeps_to_the_limits() -> None:
    rig = cold_rig(3)
    for index in range(3):
        produce(rig, 4, index)
    go_cold(rig)
    member = Member(rig, "a")
    for index in range(3):
        member.send(index=index, max_records=0, max_wait_ms=0)
        member.answer()
    member.send(named=False, max_records=6, max_wait_ms=0)
    read_disk(rig)
    told = acquired(member.answer())
    assert len(offsets(told)) == len(locked(rig)) == 8  # whole batches
    assert rig.broker.reader.cold_reads == 2


def test_a_fetch_reads_on_where_a_cold_window_holds_nothing_for_anyone() -> None:
    rig = cold_rig(groups__share__isolation_level="read_committed")
    transaction(rig, *[b"no"] * 20, commit=False)
    transaction(rig, b"yes")
    go_cold(rig)
    member = Member(rig, "a")
    member.send(max_records=10)
    read_disk(rig, 2)
    assert acquired(member.answer()) == [(21, 21, 1)]


def test_a_fetch_that_has_seen_nothing_but_markers_for_long_lets_others_have_their_turn() -> None:
    rig = Rig(groups__share__auto_offset_reset="earliest", groups__share__isolation_level="read_committed")
    rig.broker.create_topic("t", 1)
    for _ in range(LOOKS // 2):
        transaction(rig, b"no", commit=False)
    transaction(rig, b"yes")
    member = Member(rig, "a")
    member.send(max_records=1)
    assert acquired(member.answer()) == []  # at once: the client comes again, and is not kept waiting
    member.send(named=False, max_records=1)
    assert acquired(member.answer()) == [(LOOKS, LOOKS, 1)]


def test_a_fetch_whose_disk_fails_says_so_and_locks_nothing() -> None:
    rig = cold_rig()
    produce(rig, 2)
    go_cold(rig)
    member = Member(rig, "a")
    member.send()
    _, future = rig.loop.threads.pop(0)
    future.set_exception(OSError("no such sector"))
    rig.turn()
    (part,) = member.answer().responses[0].partitions
    assert (part.error_code, locked(rig)) == (56, [])
    assert drain(rig, Member(rig, "b")) == [0, 1]


def test_who_begins_a_while_ago_is_told_where_that_cannot_be_written_down() -> None:
    rig = Rig(groups__share__auto_offset_reset="by_duration:PT1H")
    rig.broker.create_topic("t", 1)
    topic = rig.broker.topic("t")
    assert topic is not None
    rig.broker.append(topic.partitions[0], batch(b"new", timestamp=rig.clock.now_ms), rig.clock.now_ms)
    rig.turn()
    member = Member(rig, "a")
    member.send()
    rig.broker.log.failed = OSError("no more")
    read_disk(rig)
    (part,) = member.answer().responses[0].partitions
    assert part.error_code == 56


# -- who is woken ------------------------------------------------------------------------------------------------------


def test_one_record_wakes_one_of_those_who_wait() -> None:
    rig = Rig(groups__share__auto_offset_reset="earliest")
    rig.broker.create_topic("t", 1)
    members = [Member(rig, f"m{number}") for number in range(20)]
    for member in members:
        member.send()
    counters = rig.broker.hold.counters
    produce(rig, 1)
    assert acquired(members[0].answer()) == [(0, 0, 1)]
    assert (counters.woken_by_arrival, counters.parked) == (1, 20)
    members[0].acknowledge(0, 0, ACCEPT)
    assert counters.woken_by_arrival == 1
    produce(rig, 1)
    assert acquired(members[1].answer()) == [(1, 1, 1)]
    members[1].acknowledge(1, 1, RELEASE)
    assert acquired(members[2].answer()) == [(1, 1, 2)]
    assert (counters.woken_by_arrival, counters.parked) == (3, 20)


def test_who_waits_gets_what_the_limit_of_locks_has_held_back() -> None:
    rig = Rig(groups__share__auto_offset_reset="earliest", groups__share__partition_max_record_locks=100)
    rig.broker.create_topic("t", 1)
    produce(rig, 100)
    produce(rig, 3)
    first, second = Member(rig, "a"), Member(rig, "b")
    assert first.fetch(max_records=100) == [(0, 99, 1)]
    second.send(max_records=100)
    assert second.answer() is None
    first.acknowledge(0, 9, ACCEPT)
    assert acquired(second.answer()) == [(100, 102, 1)]


def test_who_waits_for_committed_records_gets_them_with_the_marker() -> None:
    rig = Rig(groups__share__auto_offset_reset="earliest", groups__share__isolation_level="read_committed")
    rig.broker.create_topic("t", 1)
    member = Member(rig, "a")
    member.send()
    client = TxnClient(rig.broker, "tx")
    client.init()
    client.send("t", b"1")
    rig.turn()
    assert (member.answer(), rig.broker.hold.counters.woken_by_arrival) == (None, 0)
    client.end(commit=True)
    rig.turn()
    assert acquired(member.answer()) == [(0, 0, 1)]


def test_who_waits_is_told_that_the_topic_is_deleted(rig: Rig) -> None:
    member = Member(rig, "a")
    member.send()
    topic = rig.broker.topic("t")
    assert topic is not None
    rig.broker.delete_topic(topic)
    rig.turn()
    (part,) = member.answer().responses[0].partitions
    assert part.error_code == 100


def test_who_waits_goes_on_where_the_group_is_set_to(rig: Rig) -> None:
    produce(rig, 3)
    member = Member(rig, "a")
    assert member.fetch() == [(0, 2, 1)]
    member.acknowledge(0, 2, ACCEPT)
    member.send(named=False)
    topic = rig.broker.topic("t")
    assert topic is not None
    rig.broker.shares.reset("g", [(topic.partitions[0], 1)])
    rig.turn()
    assert acquired(member.answer()) == [(1, 2, 1)]


def test_a_request_behind_one_that_reads_from_disk_ends_its_wait() -> None:
    rig = cold_rig(groups__share__isolation_level="read_committed")
    transaction(rig, b"no", commit=False)
    go_cold(rig)
    member = Member(rig, "a")
    member.send()
    member.client.feed(member.client.encode(18, 0))
    rig.turn()
    read_disk(rig)
    assert acquired(member.client.answers()[0]) == []


# -- what stays in memory ----------------------------------------------------------------------------------------------


def test_a_group_that_nobody_fetches_for_is_not_in_memory(rig: Rig) -> None:
    members = [Member(rig, name) for name in "ab"]
    produce(rig, 3)
    for index, member in enumerate(members):
        member.fetch(index=index)
    members[0].acknowledge(0, 0, RELEASE, epoch=-1)
    assert len(rig.broker.shares.delivery.parts.of_group("g")) == 2
    members[1].client.connection.connection_lost(None)
    rig.turn()
    assert rig.broker.shares.delivery.parts.of_group("g") == []
    assert Member(rig, "c").fetch() == [(0, 2, 2)]
