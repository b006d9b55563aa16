"""The time of delays, by clocks that are rounded off to milliseconds."""

from __future__ import annotations

import random

from halfmoon.services.waiting.due_clock import DueClock
from halfmoon.services.waiting.schedule import Schedule


class FineClock:
    """Its wall clock and its monotonic one do not begin a millisecond at the same time."""

    def __init__(self) -> None:
        self.now_us = 5_000_000_000
        self.leap_us = 0

    def wall_ms(self) -> int:
        return (self.now_us + self.leap_us) // 1_000

    def mono_ms(self) -> int:
        return (self.now_us + 613) // 1_000


def test_what_is_rounded_off_does_not_bring_it_ahead() -> None:
    clock, dice = FineClock(), random.Random(1)
    due_clock = DueClock(clock)
    last_ms = due_clock.now_ms()
    for _ in range(10_000):
        clock.now_us += dice.choice((1, 300, 900, 5_000))
        now_ms = due_clock.now_ms()
        assert now_ms >= last_ms
        assert now_ms == clock.wall_ms()
        assert due_clock.ahead_ms() == 0
        last_ms = now_ms


def test_a_process_that_stands_still_between_the_two_clocks_is_not_ahead() -> None:
    """A machine with more to do than it can may take a process its core at any moment."""

    class Preempted(FineClock):
        def wall_ms(self) -> int:
            found = super().wall_ms()
            self.now_us += dice.choice((0, 0, 0, 22_000))
            return found

        def mono_ms(self) -> int:
            found = super().mono_ms()
            self.now_us += dice.choice((0, 0, 0, 22_000))
            return found

    for seed in range(50):
        dice = random.Random(seed)
        clock = Preempted()
        due_clock = DueClock(clock)
        for _ in range(200):
            clock.now_us += dice.choice((1, 300, 900, 5_000))
            now_ms = due_clock.now_ms()
            assert now_ms <= FineClock.wall_ms(clock) + 1


def test_a_clock_that_is_set_back_is_not_followed() -> None:
    clock = FineClock()
    due_clock = DueClock(clock)
    begun_ms = due_clock.now_ms()
    clock.leap_us = -3_600_000_000
    assert due_clock.now_ms() - begun_ms in (0, 1)
    clock.now_us += 7_000_000
    assert due_clock.now_ms() - begun_ms in (7_000, 7_001)
    assert due_clock.ahead_ms() in (3_600_000, 3_600_001)
    clock.leap_us = 0
    assert due_clock.now_ms() - begun_ms in (7_000, 7_001)
    clock.now_us += 1_000_000
    assert due_clock.ahead_ms() == 0


def test_messages_take_no_memory_of_their_own_while_the_clock_is_right() -> None:
    clock = FineClock()
    schedule = Schedule(DueClock(clock))
    for offset in range(1_000):
        clock.now_us += 777
        schedule.add(clock.wall_ms() + 1_000, 0, offset)
    assert schedule.shifted == 0
