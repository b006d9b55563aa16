"""The longest turns of the loop: what is noted, for how long, and under which cause. Both clocks are the test's."""

from __future__ import annotations

import logging
from collections.abc import Callable

import pytest

from halfmoon.adapters.tcp.round_time import RoundTime
from halfmoon.adapters.tcp.turns import LOGGED_S, LOOK_S, SLOW_S, WINDOW_S, Longest, Turns


class Clocks:
    def __init__(self) -> None:
        self.now_s = 100.0
        self.cpu_s = 5.0
        self.looks = 0

    def now(self) -> float:
        return self.now_s

    def cpu(self) -> float:
        self.looks += 1
        return self.cpu_s

    def work(self, seconds: float, *, waits: float = 0.0) -> None:
        """Of the processor; `waits`: others had it meanwhile."""
        self.now_s += seconds + waits
        self.cpu_s += seconds

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds


@pytest.fixture
def clocks() -> Clocks:
    return Clocks()


@pytest.fixture
def turns(clocks) -> Turns:
    return Turns(clocks.now, clocks.cpu)


def turn(clocks: Clocks, turns: Turns, cause: str, seconds: float, *, waits: float = 0.0) -> None:
    clocks.sleep(1)
    begun_s = clocks.now()
    turns.begin(begun_s)
    clocks.work(seconds, waits=waits)
    if clocks.now() - begun_s > LOOK_S:
        turns.took(cause, begun_s)


def approx(cpu_s: float, wall_s: float) -> Longest:
    return Longest(pytest.approx(cpu_s), pytest.approx(wall_s))


def test_the_longest_of_each_cause(clocks, turns):
    for seconds in (0.01, 0.03, 0.02):
        turn(clocks, turns, "Produce", seconds)
    turn(clocks, turns, "tick", 0.005)
    assert turns.longest() == {"Produce": approx(0.03, 0.03), "tick": approx(0.005, 0.005)}


def test_time_that_others_had_the_processor_is_no_cpu_time(clocks, turns):
    turn(clocks, turns, "Fetch", 0.004, waits=0.3)
    turn(clocks, turns, "Fetch", 0.006)
    assert turns.longest() == {"Fetch": approx(0.006, 0.304)}


def test_what_was_done_before_a_turn_counts_only_up_to_the_age_of_the_last_look(clocks, turns):
    turn(clocks, turns, "Produce", 0.0)
    for _ in range(20):  # in a row, and each too short to be noted
        begun_s = clocks.now()
        turns.begin(begun_s)
        clocks.work(LOOK_S / 2)
    turns.begin(begun_s := clocks.now())
    clocks.work(0.01)
    turns.took("Metadata", begun_s)
    assert 0.01 - 1e-9 <= turns.longest()["Metadata"].cpu_s <= 0.01 + LOOK_S


def test_the_cpu_clock_is_looked_at_seldom(clocks, turns):
    rounds = RoundTime(lambda end: None, clocks.now, turns)
    for _ in range(1_000):
        rounds.begin()
        clocks.work(0.000_03)
        rounds.end("Produce")
    assert clocks.looks <= 1_000 * 0.000_03 / LOOK_S + 1
    assert turns.longest() == {}


def test_a_connections_turn_is_noted_by_its_request(clocks, turns):
    rounds = RoundTime(lambda end: None, clocks.now, turns)
    rounds.begin()
    clocks.work(0.02)
    rounds.end("SEND_MESSAGE_V2")
    assert turns.longest() == {"SEND_MESSAGE_V2": approx(0.02, 0.02)}


def test_the_part_that_is_half_of_a_turn_names_it(clocks, turns):
    turns.begin(begun_s := clocks.now())
    clocks.work(0.002)
    part_s = clocks.now()
    clocks.work(0.03)
    turns.took("gc", part_s, turns.cpu_s + 0.002)
    clocks.work(0.003)
    turns.took("Produce", begun_s)
    assert turns.longest() == {"gc": approx(0.035, 0.035)}


def test_a_smaller_part_counts_beside_its_turn(clocks, turns):
    turns.begin(begun_s := clocks.now())
    clocks.work(0.03)
    part_s = clocks.now()
    clocks.work(0.01)
    turns.took("tick", part_s, turns.cpu_s + 0.03)
    turns.took("Produce", begun_s)
    assert turns.longest() == {"Produce": approx(0.04, 0.04), "tick": approx(0.01, 0.01)}


def test_it_is_kept_for_the_window_at_least_and_twice_as_long_at_most(clocks, turns):
    turn(clocks, turns, "Produce", 0.05)
    clocks.sleep(WINDOW_S - 1)
    assert turns.longest()["Produce"] == approx(0.05, 0.05)
    assert turns.longest() == turns.longest(), "nobody takes it from somebody else by reading it"
    turn(clocks, turns, "Produce", 0.01)
    clocks.sleep(WINDOW_S)
    assert turns.longest()["Produce"].cpu_s <= 0.05
    clocks.sleep(WINDOW_S)
    assert turns.longest() == {}


def test_a_long_turn_is_logged_once_a_minute_for_each_cause(clocks, turns, caplog):
    caplog.set_level(logging.WARNING)
    for _ in range(3):
        turn(clocks, turns, "CreateTopics", SLOW_S * 2)
    turn(clocks, turns, "tick", SLOW_S * 2)
    turn(clocks, turns, "timer", 0.001, waits=SLOW_S * 2)  # the machine's fault
    assert [record.getMessage() for record in caplog.records] == [
        "event=long_turn cause=CreateTopics cpu_ms=200 wall_ms=200",
        "event=long_turn cause=tick cpu_ms=200 wall_ms=200",
    ]
    clocks.sleep(LOGGED_S)
    turn(clocks, turns, "CreateTopics", SLOW_S * 2)
    assert len(caplog.records) == 3


def test_while_it_starts_nothing_is_noted(clocks, turns):
    turns.paused = True
    turn(clocks, turns, "other", 0.5)
    turns.paused = False
    turn(clocks, turns, "other", 0.003)
    assert turns.longest() == {"other": approx(0.003, 0.003)}


def test_all_who_wait_for_the_end_of_a_round_are_called_together_whatever_one_of_them_raises(turns, caplog) -> None:
    loop: list[Callable[[], None]] = []
    order: list[str] = []

    def fails() -> None:
        order.append("fails")
        turns.at_end(lambda: order.append("next round"))
        raise ValueError("of one")

    turns.quick_soon = loop.append
    turns.at_end(fails)
    turns.at_end(lambda: order.append("other"))
    assert len(loop) == 1
    loop.pop()()
    assert order == ["fails", "other"]
    assert [record.getMessage() for record in caplog.records] == ["event=callback_failed"]
    (end,) = loop
    end()
    assert order == ["fails", "other", "next round"]


def test_without_a_loop_that_measures_each_is_called_by_the_loop_there_is(turns) -> None:
    loop: list[Callable[[], None]] = []
    soon = turns.soon(loop.append)
    soon(turns.forget)
    assert loop == [turns.forget]
