"""Deadlines of whoever waits for a time. All times are monotonic milliseconds; nothing here looks at a clock."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol


class Timed(Protocol):
    """Something that has to do something at a time."""

    def next_deadline(self) -> int | None:
        """When `expire` has work; None: not before something else happens, which then arms the timers."""
        ...

    def expire(self, mono_ms: int) -> None:
        """Do what is due."""
        ...


class Timers:
    """All owners of deadlines of a broker."""

    def __init__(self) -> None:
        self._owners: list[Timed] = []
        self.on_deadline: Callable[[int], None] = lambda mono_ms: None
        """Called with a time at which `expire` is to be called, which may be earlier than the last one given."""

    def add(self, owner: Timed) -> None:
        self._owners.append(owner)

    def arm(self, mono_ms: int) -> None:
        """There is something to do at this time, or before."""
        self.on_deadline(mono_ms)

    def next_deadline(self) -> int | None:
        """The earliest of all."""
        found = [deadline for owner in self._owners if (deadline := owner.next_deadline()) is not None]
        return min(found, default=None)

    def expire(self, mono_ms: int) -> None:
        for owner in self._owners:
            owner.expire(mono_ms)
