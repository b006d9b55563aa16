"""Deadlines of transactions."""

from __future__ import annotations

from halfmoon.services.transactions.timeouts import Timeouts


def test_the_earliest_is_due_until_it_has_ended() -> None:
    timeouts = Timeouts()
    timeouts.began("late", 200)
    timeouts.began("early", 100)
    assert timeouts.next_deadline() == 100
    assert timeouts.due(99) is None
    assert timeouts.due(100) == timeouts.due(100) == "early"
    timeouts.ended("early")
    assert timeouts.due(150) is None
    assert timeouts.due(200) == "late"
    timeouts.ended("late")
    assert timeouts.next_deadline() is None


def test_one_that_could_not_be_ended_is_due_later() -> None:
    timeouts = Timeouts()
    timeouts.began("a", 100)
    timeouts.began("b", 101)
    assert timeouts.due(101) == "a"
    timeouts.retry_at(110)
    assert timeouts.due(101) == "b"
    timeouts.ended("b")
    assert timeouts.due(109) is None
    assert timeouts.due(110) == "a"


def test_an_id_has_the_deadline_of_its_last_transaction() -> None:
    timeouts = Timeouts()
    timeouts.began("a", 100)
    timeouts.ended("a")
    timeouts.began("a", 300)
    assert timeouts.due(299) is None
    assert timeouts.due(300) == "a"


def test_those_that_ended_leave_few_entries() -> None:
    timeouts = Timeouts()
    timeouts.began("open", 1_000_000)
    for number in range(1_000):
        timeouts.began("busy", 10_000 + number)
        timeouts.ended("busy")
    assert len(timeouts) <= 65
    assert timeouts.next_deadline() == 1_000_000
