"""Relays take turns, rest when they fail, and are never asked for more than they have."""

from __future__ import annotations

import logging
from collections.abc import Generator
from typing import Any

import pytest

from halfmoon.core.relay import FIRST_PAUSE_MS, LONGEST_PAUSE_MS, MOST_WAITS, WAIT_MS, Load, Relays
from halfmoon.errors import BrokerError, Fault
from tests.core.bench import VirtualClock


class Steps:
    """A mover that does what it is told: "pause", a function to load, or an exception to raise."""

    def __init__(self, name: str, *plan: Any) -> None:
        self.name = name
        self.plan = list(plan)
        self.done: list[Any] = []
        self.runs = 0
        self.closed = 0

    def __str__(self) -> str:
        return self.name

    def run(self) -> Generator[Load | None, Any, None]:
        self.runs += 1
        try:
            while self.plan:
                what = self.plan.pop(0)
                if isinstance(what, Exception):
                    raise what
                self.done.append((yield None if what == "pause" else what))
        except GeneratorExit:
            self.closed += 1
            raise


@pytest.fixture
def relays(clock: VirtualClock) -> Relays:
    return Relays(clock, logging.getLogger("test"))


def drain(relays: Relays) -> None:
    while relays.has_work:
        assert relays.step() is None


def test_movers_take_turns(relays: Relays) -> None:
    order: list[str] = []

    class Noted(Steps):
        def run(self) -> Generator[Load | None, Any, None]:
            for _ in range(3):
                order.append(self.name)
                yield None

    relays.add("a", Noted("a"))
    relays.add("b", Noted("b"))
    drain(relays)
    assert order == ["a", "b"] * 3


def test_somebody_is_told_once_when_there_is_work(relays: Relays) -> None:
    told = []
    relays.on_ready = lambda: told.append(1)
    first, second = Steps("a"), Steps("b")
    relays.add(1, first)
    relays.add(2, second)
    assert told == [1]
    drain(relays)
    relays.wake(1)
    relays.wake(1)
    assert told == [1, 1]
    drain(relays)
    assert (first.runs, second.runs) == (2, 1)


def test_who_is_called_while_at_work_looks_once_more(relays: Relays) -> None:
    mover = Steps("a", "pause", "pause")
    relays.add(1, mover)
    relays.step()
    relays.wake(1)
    relays.wake(1)
    drain(relays)
    assert mover.runs == 2


def test_what_was_loaded_comes_back_and_nothing_happens_before(relays: Relays) -> None:
    mover = Steps("a", lambda: 42, "pause")
    assert relays.is_idle
    relays.add(1, mover)
    assert not relays.is_idle
    loading = relays.step()
    assert loading is not None
    assert not relays.has_work
    relays.wake(1)
    assert not relays.has_work
    assert not relays.is_idle
    loading.loaded(loading.load())
    drain(relays)
    assert relays.is_idle
    assert mover.done == [42, None]
    assert mover.runs == 2, "it was called for meanwhile"


@pytest.mark.parametrize("error", [OSError("disk"), BrokerError(Fault.KAFKA_STORAGE_ERROR, "full"), ValueError("bug")])
def test_a_mover_that_fails_rests_longer_each_time_and_holds_up_nobody(
    relays: Relays, clock: VirtualClock, error: Exception
) -> None:
    deadlines: list[int] = []
    relays.on_deadline = deadlines.append
    failing, other = Steps("view v-0", *[error] * 10), Steps("b", "pause")
    relays.add(1, failing)
    relays.add(2, other)
    drain(relays)
    assert other.runs == 1
    pauses = []
    for number in range(9):
        assert any("view v-0" in problem and str(error) in problem for problem in relays.problems())
        relays.wake(1)
        assert not relays.has_work, "it rests, whoever calls"
        due = relays.next_deadline()
        assert due is not None
        assert due == deadlines[number]
        pauses.append(due - clock.now_ms)
        relays.expire(due - 1)
        assert not relays.has_work
        clock.now_ms = due
        relays.expire(due)
        drain(relays)
    assert pauses[:3] == [FIRST_PAUSE_MS, 2 * FIRST_PAUSE_MS, 4 * FIRST_PAUSE_MS]
    assert pauses[-1] == LONGEST_PAUSE_MS
    clock.now_ms += LONGEST_PAUSE_MS
    relays.expire(clock.now_ms)
    drain(relays)
    assert relays.problems() == []
    assert relays.next_deadline() is None


def test_what_will_be_there_in_a_moment_is_waited_for(relays: Relays, clock: VirtualClock) -> None:
    """In a shard: a topic that is being made."""
    error = BrokerError(Fault.NOT_LEADER_OR_FOLLOWER, "topic 't' is being made")
    mover = Steps("a", *[error] * (MOST_WAITS + 3))
    relays.add(1, mover)

    def pause() -> int:
        drain(relays)
        due = relays.next_deadline()
        assert due is not None
        waited = due - clock.now_ms
        clock.now_ms = due
        relays.expire(due)
        return waited

    for _ in range(MOST_WAITS):
        assert pause() == WAIT_MS
        assert relays.problems() == []
    assert [pause(), pause()] == [FIRST_PAUSE_MS, 2 * FIRST_PAUSE_MS]
    assert relays.problems() == ["a: topic 't' is being made"]
    mover.plan.clear()
    drain(relays)
    assert relays.problems() == []


def test_a_load_that_fails_is_a_failure_of_its_mover(relays: Relays, clock: VirtualClock) -> None:
    mover = Steps("a", lambda: 1)
    relays.add(1, mover)
    loading = relays.step()
    assert loading is not None
    loading.failed(OSError("read error"))
    assert mover.closed == 1
    assert relays.problems() == ["a: read error"]
    clock.now_ms += FIRST_PAUSE_MS
    relays.expire(clock.now_ms)
    drain(relays)
    assert relays.problems() == []


@pytest.mark.parametrize("state", ["idle", "ready", "loading", "resting"])
def test_a_mover_can_be_removed_whatever_it_is_at(relays: Relays, clock: VirtualClock, state: str) -> None:
    plan: dict[str, list[Any]] = {
        "idle": [],
        "ready": ["pause", "pause"],
        "loading": [lambda: 1],
        "resting": [OSError("x")],
    }
    mover = Steps("a", *plan[state])
    relays.add(1, mover)
    loading = relays.step()
    relays.remove(1)
    relays.wake(1)
    if loading is not None:
        loading.loaded(5)
        loading.failed(OSError("late"))
    drain(relays)
    clock.now_ms += LONGEST_PAUSE_MS
    relays.expire(clock.now_ms)
    assert not relays.has_work
    assert (relays.problems(), relays.next_deadline(), mover.done) == ([], None, [])
    assert mover.closed == (state in ("ready", "loading"))
    relays.add(1, Steps("b"))
    drain(relays)
