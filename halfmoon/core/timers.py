"""Deadlines of whoever waits for a time. All times are monotonic milliseconds; nothing here looks at a clock.

An owner that raises keeps no other from its deadline. It is asked again after a pause.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

PAUSE_MS: Final = 1_000
"""An owner that has raised is asked again after so long."""


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
        self._resting: dict[int, int] = {}
        """Index of an owner that has raised → until when it is left alone."""
        self.on_deadline: Callable[[int], None] = lambda mono_ms: None
        """Called with a time at which `expire` is to be called, which may be earlier than the last one given."""
        self.on_error: Callable[[Exception], None] = lambda error: None
        """Told what an owner has raised."""

    @property
    def owners(self) -> tuple[Timed, ...]:
        return tuple(self._owners)

    def add(self, owner: Timed) -> None:
        self._owners.append(owner)

    def arm(self, mono_ms: int) -> None:
        """There is something to do at this time, or before."""
        self.on_deadline(mono_ms)

    def next_deadline(self) -> int | None:
        """The earliest of all."""
        resting = self._resting
        found = [
            deadline
            for index, owner in enumerate(self._owners)
            if index not in resting and (deadline := owner.next_deadline()) is not None
        ]
        return min((*found, *resting.values()), default=None)

    def expire(self, mono_ms: int) -> None:
        for index, owner in enumerate(self._owners):
            if self._resting.get(index, mono_ms) > mono_ms:
                continue
            self._resting.pop(index, None)
            try:
                owner.expire(mono_ms)
            except Exception as error:
                self._resting[index] = mono_ms + PAUSE_MS
                self.on_error(error)
