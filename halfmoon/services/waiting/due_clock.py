"""The time by which waiting messages become due: the wall clock, but for its leaps.

A delay of ten seconds takes ten seconds, whatever happens to the wall clock meanwhile. So while it runs as it should,
this is the wall clock, to the millisecond. Where it leaps ahead (a suspended machine wakes up), this one follows: what
was due meanwhile is due now, and is delivered a little at a time like any backlog. Where it leaps back, this one goes
on at its pace, or nothing would be delivered for as long as the leap; it runs slower by an eighth until both agree
again.
"""

from __future__ import annotations

from halfmoon.core.clock import Clock

LEAP_MS = 1_000
"""Going back by less is no leap, and is waited out."""
SLOWER = 8
"""Behind a leap back, one ms in so many is left out."""


class DueClock:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._mono_ms = clock.mono_ms()
        self._now_ms = clock.wall_ms()
        self._owed = 0
        """Eighths of a ms that were not left out yet."""

    def now_ms(self) -> int:
        """Unix ms."""
        wall_ms, mono_ms = self._clock.wall_ms(), self._clock.mono_ms()
        passed_ms, self._mono_ms = mono_ms - self._mono_ms, mono_ms
        expected_ms = self._now_ms + passed_ms
        if wall_ms >= expected_ms - LEAP_MS:
            self._owed = 0
            self._now_ms = wall_ms
        else:
            self._owed += passed_ms
            left_out, self._owed = divmod(self._owed, SLOWER)
            self._now_ms = max(wall_ms, expected_ms - left_out)
        return self._now_ms

    def mono_ms(self, due_ms: int) -> int:
        """When a time comes that is due then, by the monotonic clock, as far as can be told now."""
        return self._mono_ms + max(0, due_ms - self.now_ms())
