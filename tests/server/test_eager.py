"""When the loop is kept awake, and when not."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

from halfmoon.server.eager import (
    BUSY_LOOKS,
    BUSY_TURNS,
    FIRST_REST_S,
    LONGEST_REST_S,
    SMALL_BYTES,
    SOON_S,
    SPIN_S,
    TAKEN_S,
    Eager,
)


class Loop:
    def __init__(self) -> None:
        self.now_s = 100.0
        self.soon: list[Callable[[], None]] = []

    def call_soon(self, callback: Callable[[], None]) -> None:
        self.soon.append(callback)

    def turn(self) -> bool:
        """One round; False if the loop would have slept."""
        called, self.soon = self.soon, []
        for callback in called:
            callback()
        return bool(called)


@pytest.fixture
def loop() -> Loop:
    return Loop()


@pytest.fixture
def eager(loop) -> Eager:
    found = Eager(loop.call_soon, lambda: loop.now_s)
    found.turned(loop.now_s, 0)
    assert not loop.soon, "nothing came before the first"
    return found


def work(loop: Loop, eager: Eager, after_s: float, wrote_bytes: int = 200) -> None:
    begun_s = loop.now_s = loop.now_s + after_s
    loop.now_s += 20e-6
    eager.turned(begun_s, wrote_bytes)


def test_after_a_small_request_that_came_soon_it_looks_for_the_next_for_a_while(loop, eager) -> None:
    work(loop, eager, SOON_S / 2)
    assert loop.turn()
    loop.now_s += SPIN_S / 2
    assert loop.turn()
    loop.now_s += SPIN_S
    assert loop.turn(), "the last look, which finds that the time is over"
    assert not loop.turn()


def test_a_request_meanwhile_prolongs_it_and_does_not_double_it(loop, eager) -> None:
    work(loop, eager, SOON_S / 2)
    work(loop, eager, SPIN_S / 2)
    assert len(loop.soon) == 1
    loop.now_s += SPIN_S * 0.9
    assert loop.turn()
    assert len(loop.soon) == 1


def test_where_the_next_request_is_there_each_time_it_hardly_looks(loop, eager) -> None:
    """As with a client that has several in the air. The first look is the turn's own."""
    looks = 0
    for _ in range(10 * BUSY_TURNS):
        work(loop, eager, SOON_S / 10)
        looks += loop.turn()
    assert looks <= BUSY_LOOKS + 3 * 10
    for _ in range(BUSY_TURNS + 1):
        work(loop, eager, SOON_S / 10)
        if loop.soon:
            break
    assert loop.turn()
    assert loop.turn(), "nothing was there: it looks as ever"
    loop.now_s += SPIN_S / 2
    assert loop.turn()
    work(loop, eager, 0.0)
    assert loop.turn()
    assert loop.turn()


@pytest.mark.parametrize(("after_s", "wrote_bytes"), [(SOON_S * 2, 200), (SOON_S / 2, SMALL_BYTES + 1)])
def test_it_sleeps_after_one_that_came_late_and_after_a_large_one(loop, eager, after_s, wrote_bytes) -> None:
    work(loop, eager, after_s, wrote_bytes)
    assert not loop.turn()


def rest(loop: Loop, eager: Eager) -> float:
    """For how long it does not look, after a look that took long."""
    works_until_it_looks(loop, eager)
    loop.turn()  # the turn's own look, before the loop has asked for events
    loop.turn()
    begun_s = loop.now_s
    assert loop.turn(), "the last look, which finds that the time is over"
    assert not loop.soon
    works_until_it_looks(loop, eager)
    return loop.now_s - begun_s


def works_until_it_looks(loop: Loop, eager: Eager) -> None:
    while not loop.soon:
        work(loop, eager, SOON_S / 2)


def test_it_rests_where_somebody_else_takes_the_processor_for_long(loop, eager, monkeypatch) -> None:
    def away() -> None:
        loop.now_s += TAKEN_S * 2

    monkeypatch.setattr(os, "sched_yield", away)
    rests = [rest(loop, eager) for _ in range(12)]
    assert rests == pytest.approx([min(FIRST_REST_S * 2**at, LONGEST_REST_S) for at in range(12)], abs=1e-3)
    for _ in range(3):
        loop.turn()
    loop.now_s += 3 * LONGEST_REST_S
    assert rest(loop, eager) == pytest.approx(FIRST_REST_S, abs=1e-3), "it was calm for long"
