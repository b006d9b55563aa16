"""A clock that a test moves."""

from __future__ import annotations

from halfmoon.core.clock import Clock


class MovedClock:
    """See core/clock.Clock. It goes on by itself, ahead of the machine's."""

    def __init__(self, machine: Clock, ahead_ms: int = 0) -> None:
        self.machine = machine
        self.ahead_ms = ahead_ms

    def wall_ms(self) -> int:
        return self.machine.wall_ms() + self.ahead_ms

    def mono_ms(self) -> int:
        return self.machine.mono_ms() + self.ahead_ms
