"""A member is told what it has acquired after a look that was begun once it had acquired it."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count

import pytest
from test_shard_shares import ACCEPT, RENEW, Member, acquired, errors, locked, mine
from two_processes import TwoProcesses

from halfmoon.adapters.tcp.round_time import RoundTime
from halfmoon.core.catalog.topics import Topic
from tests.core.bench import sync

NOT_LEADER = 6


class Database:
    """Whether the shards are this process's is known once it is asked."""

    def __init__(self) -> None:
        self.waiting: list[Callable[[bool], None]] = []
        self.looks = 0

    def confirm(self, told: Callable[[bool], None]) -> None:
        self.looks += 1
        self.waiting.append(told)

    def answer(self, certain: bool = True) -> None:
        waiting, self.waiting = self.waiting, []
        for told in waiting:
            told(certain)


@pytest.fixture
def database() -> Database:
    return Database()


@pytest.fixture
def two(database: Database) -> TwoProcesses:
    return TwoProcesses(database.confirm, groups={"share": {"auto_offset_reset": "earliest"}}, log={"hot_bytes": 0})


@pytest.fixture
def topic(two: TwoProcesses) -> Topic:
    return two.topic("t", 8)


def go_cold(two: TwoProcesses) -> None:
    two.turn()
    for node in two.rigs[0].nodes.values():
        node.kernel.housekeeping.plan()
        node.fs.cold = True


def test_what_was_there_is_told_after_one_look(two: TwoProcesses, topic: Topic, database: Database) -> None:
    index = mine(two, topic)[0]
    two.produce(topic, (index, 3))
    member = Member(two, topic)
    assert member.fetch([index]) is None
    assert database.looks == 1
    database.answer()
    assert acquired(member.answer()) == {index: [(0, 2, 1)]}


def test_nothing_is_told_without_a_look(two: TwoProcesses, topic: Topic, database: Database) -> None:
    member = Member(two, topic)
    assert acquired(member.fetch(mine(two, topic))) == {}
    assert database.looks == 0


@pytest.mark.parametrize("certain", [True, False])
def test_what_is_acquired_after_a_wait_is_told_after_a_look_of_that_time(
    two: TwoProcesses, topic: Topic, database: Database, certain: bool
) -> None:
    """The node was paused while the request waited. Another has the shard, and has given the records to its members."""
    index = mine(two, topic)[0]
    two.produce(topic, (index, 3))
    first, second = Member(two, topic, name="a"), Member(two, topic, name="b")
    first.fetch([index])
    database.answer()
    assert acquired(first.answer()) == {index: [(0, 2, 1)]}
    assert second.fetch([index], max_wait_ms=60_000) is None
    database.answer()
    two.turn()
    assert second.answer() is None
    first.client.connection.connection_lost(None)
    two.turn()
    assert second.answer() is None
    assert locked(two, topic, index) == 3
    database.answer(certain)
    two.turn()
    if certain:
        assert acquired(second.answer()) == {index: [(0, 2, 2)]}
    else:
        assert second.answer() is None
        assert second.client.transport.closed
        second.client.connection.connection_lost(None)
        assert locked(two, topic, index) == 0


def test_what_was_acquired_before_something_was_read_from_the_disk_has_a_look_of_its_own(
    two: TwoProcesses, topic: Topic, database: Database
) -> None:
    """The shard of one partition may be lost while the records of another are read."""
    cold, hot = mine(two, topic)[:2]
    two.produce(topic, (cold, 1))
    go_cold(two)
    two.rigs[0].nodes[two.shard_of(topic, hot)].fs.cold = False
    two.produce(topic, (hot, 1))
    member = Member(two, topic)
    member.send([hot, cold])
    assert (database.looks, len(two.rigs[0].loop.threads)) == (1, 1)
    two.turn()
    assert database.looks == 2
    database.waiting.pop()(True)
    assert member.answer() is None
    database.answer(False)
    two.turn()
    assert member.client.transport.closed


def test_what_is_read_for_a_shard_that_is_lost_meanwhile_is_nobodys(
    two: TwoProcesses, topic: Topic, database: Database
) -> None:
    index = two.index_in(topic, 2)
    two.produce(topic, (index, 1))
    go_cold(two)
    member = Member(two, topic)
    member.send([index])
    (read,) = two.rigs[0].loop.threads
    two.rigs[0].loop.threads.clear()
    two.rigs[0].lose(2)
    two.rigs[0].loop.threads.append(read)
    two.turn()
    database.answer()
    two.turn()
    answer = member.answer()
    assert (acquired(answer), errors(answer)) == ({}, {index: NOT_LEADER})


@pytest.mark.parametrize("certain", [True, False])
def test_outcomes_are_told_after_a_look(two: TwoProcesses, topic: Topic, database: Database, certain: bool) -> None:
    """That a lock is renewed stands in no log."""
    index = mine(two, topic)[0]
    two.produce(topic, (index, 1))
    member = Member(two, topic)
    member.fetch([index])
    database.answer()
    member.answer()
    member.send(acks=[(index, 0, ACCEPT)])
    two.turn()
    assert member.answer() is None
    assert database.looks == 2
    database.answer(certain)
    two.turn()
    assert (member.answer() is not None) == certain
    assert member.client.transport.closed == (not certain)


@pytest.mark.parametrize("what", [ACCEPT, RENEW])
@pytest.mark.parametrize("certain", [True, False])
def test_acknowledgements_are_told_after_a_look(
    two: TwoProcesses, topic: Topic, database: Database, certain: bool, what: int
) -> None:
    """The node was paused, and another has given the record to a member. Neither that a lock is renewed stands in a
    log, nor what is finished already a second time."""
    index = mine(two, topic)[0]
    two.produce(topic, (index, 1))
    member = Member(two, topic)
    member.fetch([index])
    database.answer()
    member.answer()
    member.send_acknowledgement([(index, 0, what)], is_renew_ack=what == RENEW)
    two.turn()
    assert member.answer() is None
    assert database.looks == 2
    database.answer(certain)
    two.turn()
    answer = member.answer()
    if certain:
        assert errors(answer) == {}
    else:
        assert answer is None
    assert member.client.transport.closed == (not certain)


@pytest.mark.parametrize("by_fetch", [True, False])
@pytest.mark.parametrize(("what", "code"), [(RENEW, NOT_LEADER), (ACCEPT, 0)])
def test_a_shard_that_is_lost_between_two_slices_has_renewed_nothing(
    two: TwoProcesses, topic: Topic, database: Database, what: int, code: int, by_fetch: bool
) -> None:
    """The look says nothing of a shard that the node does not have any more. What is written is certain by its commit,
    wherever the shard is now."""
    lost, stays = two.index_in(topic, 2), two.index_in(topic, 0)
    two.produce(topic, (lost, 1), (stays, 1))
    member, rig = Member(two, topic), two.rigs[0]
    member.fetch([lost, stays])
    database.answer()
    assert acquired(member.answer()).keys() == {lost, stays}
    ticks = count()
    rig.server.round_time = RoundTime(rig.loop.call_soon, lambda: next(ticks))
    acks = [(lost, 0, what), (stays, 0, what)]
    if by_fetch:
        member.send(acks=acks, is_renew_ack=what == RENEW, min_bytes=0, max_bytes=0, max_records=0)
    else:
        member.send_acknowledgement(acks, is_renew_ack=what == RENEW)
    for node in two.rigs[0].nodes.values():
        sync(node)
    assert database.looks == 1, "it is in the middle of it"
    rig.lose(2)
    two.turn()
    assert database.looks == 2
    assert member.answer() is None
    database.answer()
    two.turn()
    (there,) = member.answer().responses
    field = "acknowledge_error_code" if by_fetch else "error_code"
    found = {part.partition_index: getattr(part, field) for part in there.partitions}
    assert found == {lost: code, stays: 0}


def test_an_acknowledgement_of_nothing_is_told_without_a_look(
    two: TwoProcesses, topic: Topic, database: Database
) -> None:
    member = Member(two, topic)
    member.fetch(mine(two, topic))
    assert member.acknowledge([]) == {}
    assert database.looks == 0
