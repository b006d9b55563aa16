"""Locks of queues: one member's, renewed by asking, ended by time."""

from __future__ import annotations

import pytest

from halfmoon.adapters.rocketmq import queue_locks
from halfmoon.adapters.rocketmq.queue_locks import QueueLocks

EXPIRE_MS, LATE_MS = 60_000, 10_000


def test_a_queue_is_who_asks_firsts() -> None:
    locks = QueueLocks(EXPIRE_MS)
    assert locks.lock("g", "a", [1, 2], 0) == [1, 2]
    assert locks.lock("g", "b", [2, 3], 0) == [3]
    assert locks.lock("other", "b", [1, 2], 0) == [1, 2]
    assert (locks.holder("g", 2, 0), locks.holder("g", 3, 0), locks.holder("g", 4, 0)) == ("a", "b", None)


def test_a_lock_is_renewed_by_asking_and_ends_by_time() -> None:
    locks = QueueLocks(EXPIRE_MS)
    locks.lock("g", "a", [1], 0)
    assert locks.lock("g", "a", [1], 50_000) == [1]
    assert locks.lock("g", "b", [1], EXPIRE_MS) == []
    assert locks.holder("g", 1, 50_000 + EXPIRE_MS - 1) == "a"
    assert locks.holder("g", 1, 50_000 + EXPIRE_MS) is None
    assert locks.lock("g", "b", [1], 50_000 + EXPIRE_MS) == [1]


def test_all_locks_can_last_longer() -> None:
    locks = QueueLocks(EXPIRE_MS)
    locks.lock("g", "a", [1, 2], 0)
    locks.put_off(3_600_000)
    assert locks.holder("g", 1, 3_600_000 + EXPIRE_MS - 1) == "a"
    assert locks.holder("g", 2, 3_600_000 + EXPIRE_MS) is None


def test_only_who_holds_it_gives_it_up() -> None:
    locks = QueueLocks(EXPIRE_MS)
    locks.lock("g", "a", [1], 0)
    locks.unlock("g", "b", [1, 2])
    locks.unlock("nobody", "b", [1])
    assert locks.holder("g", 1, 0) == "a"
    locks.unlock("g", "a", [1])
    assert locks.holder("g", 1, 0) is None
    assert not locks.is_ordered("g", 0)


def test_who_leaves_gives_up_all() -> None:
    locks = QueueLocks(EXPIRE_MS)
    locks.lock("g", "a", [1, 2], 0)
    locks.lock("g", "b", [3], 0)
    locks.lock("h", "a", [1], 0)
    locks.left("g", "a", 0)
    locks.left("nobody", "a", 0)
    assert locks.lock("g", "c", [1, 2, 3], 0) == [1, 2]
    assert locks.holder("h", 1, 0) == "a"


def test_who_has_left_is_not_heard_until_it_is_back() -> None:
    locks = QueueLocks(EXPIRE_MS)
    locks.left("g", "a", 0)
    locks.left("g", "b", 0)
    assert locks.lock("g", "a", [1], LATE_MS - 1) == []
    assert locks.lock("h", "a", [1], 0) == [1]
    locks.is_there("g", "a")
    assert locks.lock("g", "a", [1], 1) == [1]
    assert locks.lock("g", "b", [2], LATE_MS) == [2]


def test_a_group_that_holds_any_consumes_in_order() -> None:
    locks = QueueLocks(EXPIRE_MS)
    assert not locks.is_ordered("g", 0)
    locks.lock("g", "a", [1], 0)
    assert locks.is_ordered("g", EXPIRE_MS - 1)
    assert not locks.is_ordered("g", EXPIRE_MS)


def test_what_has_expired_leaves_nothing() -> None:
    locks = QueueLocks(EXPIRE_MS)
    locks.lock("g", "a", [1], 0)
    locks.lock("g", "a", [2], 10)
    locks.lock("h", "a", [1], 0)
    locks.lock("i", "a", [], 0)
    locks.left("i", "b", EXPIRE_MS - LATE_MS)
    locks.left("i", "c", EXPIRE_MS - LATE_MS + 1)
    locks.expire(EXPIRE_MS)
    assert locks._groups.keys() == {"g"}
    assert locks._groups["g"].keys() == {2}
    assert locks._left.keys() == {("i", "c")}


def test_there_are_no_more_of_them_than_so_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue_locks, "MOST_LOCKS", 3)
    locks = QueueLocks(EXPIRE_MS)
    assert locks.lock("g", "a", [1, 2], 0) == [1, 2]
    assert locks.lock("h", "b", [1, 2], 0) == [1]
    assert locks.lock("g", "a", [1, 2], 10) == [1, 2]
    locks.unlock("g", "a", [2])
    assert locks.lock("h", "b", [1, 2], 20) == [1, 2]
    locks.expire(20 + EXPIRE_MS)
    assert locks.lock("k", "c", [1, 2, 3, 4], 20 + EXPIRE_MS) == [1, 2, 3]
