"""ShareAcknowledge: what was acknowledged before is told once that is durable."""

from __future__ import annotations

from typing import Any

import pytest
from kafka_rig import Rig
from share_rig import ACCEPT, RENEW, Member, acquired, produce

from tests.core.bench import sync

STORAGE_ERROR = 56


class SlowDisk(Rig):
    """What is written becomes durable when the test says so."""

    is_slow = False

    def turn(self) -> None:
        if not self.is_slow:
            super().turn()
            return
        self.broker.write()
        self.broker.settle()
        self.loop.run()


@pytest.fixture
def rig() -> SlowDisk:
    made = SlowDisk(groups__share__auto_offset_reset="earliest")
    made.broker.create_topic("t", 1)
    return made


def acknowledged_twice(rig: SlowDisk, *, by_fetch: bool) -> tuple[Member, Member]:
    """A member that has accepted all, and has not waited for the answer; and the same one in a new session, where it
    has accepted all once more. Nothing of it is durable."""
    first, again = Member(rig, "a"), Member(rig, "a")
    produce(rig, 10)
    assert first.fetch() == [(0, 9, 1)]
    rig.is_slow = True
    first.send_acknowledgement(0, 9, ACCEPT)
    again.send(max_records=0, max_wait_ms=0)
    assert acquired(again.answer()) == []
    if by_fetch:
        again.send((0, 9, ACCEPT), max_wait_ms=0)
    else:
        again.send_acknowledgement(0, 9, ACCEPT)
    assert first.answer() is None
    assert again.answer() is None
    return first, again


def code(answer: Any) -> int:
    (part,) = answer.responses[0].partitions
    return int(part.acknowledge_error_code if hasattr(part, "acknowledge_error_code") else part.error_code)


@pytest.mark.parametrize("by_fetch", [True, False])
def test_what_is_finished_already_is_told_once_that_is_durable(rig: SlowDisk, by_fetch: bool) -> None:
    first, again = acknowledged_twice(rig, by_fetch=by_fetch)
    sync(rig.broker)
    rig.turn()
    assert [code(first.answer()), code(again.answer())] == [0, 0]


@pytest.mark.parametrize("by_fetch", [True, False])
def test_what_a_failed_disk_may_have_lost_is_not_told_as_finished(rig: SlowDisk, by_fetch: bool) -> None:
    first, again = acknowledged_twice(rig, by_fetch=by_fetch)
    rig.broker.finish_sync(rig.broker.log.sync_job(), OSError("no more"))
    rig.loop.run()
    assert [code(first.answer()), code(again.answer())] == [STORAGE_ERROR] * 2


def test_locks_are_renewed_at_once_where_all_is_durable(rig: SlowDisk) -> None:
    member = Member(rig, "a")
    produce(rig, 10)
    member.fetch()
    rig.is_slow = True
    assert code(member.acknowledge(0, 9, RENEW)) == 0


@pytest.mark.parametrize("by_fetch", [True, False])
def test_a_lock_is_renewed_without_waiting_for_what_others_write(rig: SlowDisk, by_fetch: bool) -> None:
    """It is in no log, and a log of an object store is durable after a fifth of a second only."""
    first, member = Member(rig, "a"), Member(rig, "b")
    produce(rig, 10)
    assert first.fetch(max_records=5, share_acquire_mode=1) == [(0, 4, 1)]
    assert member.fetch() == [(5, 9, 1)]
    rig.is_slow = True
    first.send_acknowledgement(0, 4, ACCEPT)
    if by_fetch:
        member.send((5, 9, RENEW), is_renew_ack=True, min_bytes=0, max_bytes=0, max_records=0, max_wait_ms=0)
    else:
        member.send_acknowledgement(5, 9, RENEW)
    assert code(member.answer()) == 0
    assert first.answer() is None
