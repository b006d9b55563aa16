"""The two times by which waiting messages become due.

A *delay* ("in ten seconds") is kept by a time that never goes back and never stands still: the wall clock as it was at
the start, going on at the monotonic clock's pace. Where the wall clock leaps ahead of it, it follows: a machine that
has slept cannot be told from one whose clock was set ahead. Where the wall clock is set back, it does not follow; so a
clock that is set back and right again changes nothing. A time of the *wall clock* ("at eight o'clock") is reached when
the wall clock says so, whatever it has done before.

What is written down is by the wall clock: when a delay ends, as that clock stood when the message came. So over a
restart a delay can only be as right as the clock: where that was set back meanwhile, the time at which the last batch
was stored is the earliest that it can be; then the time in which the broker was away does not count, and nothing is
delivered early.
"""

from __future__ import annotations

from halfmoon.core.clock import Clock

ROUNDING_MS = 2
"""Both clocks are rounded off, each for itself: so much they may differ by that alone."""


class DueClock:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        # The wall clock first, here and below: the process may stand still in between. The other way round, what is
        # counted on from the two would be ahead by so much, and stay so.
        self._now_ms = clock.wall_ms()
        self._mono_ms = clock.mono_ms()

    def begin(self, last_ms: int) -> None:
        """At a start: it was so late at least when the broker stopped (Unix ms)."""
        self._now_ms = max(self.now_ms(), last_ms)

    def now_ms(self) -> int:
        """By which delays are kept: Unix ms, if the wall clock was never set back."""
        wall_ms = self._clock.wall_ms()
        mono_ms = self._clock.mono_ms()
        going_on_ms = self._now_ms + mono_ms - self._mono_ms
        if going_on_ms - wall_ms > ROUNDING_MS:
            self._now_ms = going_on_ms
        else:
            self._now_ms = max(self._now_ms, wall_ms)
        self._mono_ms = mono_ms
        return self._now_ms

    def wall_ms(self) -> int:
        """Unix ms."""
        return self._clock.wall_ms()

    def ahead_ms(self) -> int:
        """How far the time of delays is ahead of the wall clock, ≥ 0."""
        return max(0, self.now_ms() - self._clock.wall_ms())

    def mono_ms(self, left_ms: int) -> int:
        """The time in so many milliseconds, by the monotonic clock."""
        return self._clock.mono_ms() + max(0, left_ms)
