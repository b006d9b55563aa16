"""Many timers, few of which ever fire: the sessions of ten thousand members that keep sending heartbeats.

A heartbeat moves its member's deadline later. Moving an entry inside a heap costs a search, so it is not moved: the
heap keeps the *old* deadline, and when that comes up the timer is put back at the new one. A heartbeat therefore costs
one assignment, and each timer costs one heap operation per session time-out instead of one per heartbeat.

Rules
- A timer's `armed_ms` is the deadline of its one valid heap entry; entries with another deadline are stale and skipped.
- `armed_ms <= deadline_ms` while both are set: an entry may come up too early, never too late.
- Timers due at the same moment fire in the order in which they were armed, so that a run can be repeated exactly.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from typing import Generic, TypeVar

Action = TypeVar("Action")

_SMALL = 64
"""Heaps up to this many entries are never swept for stale entries."""


class Timer(Generic[Action]):
    """One deadline and what is to be done then. Set and cancelled through `Deadlines` only."""

    __slots__ = ("action", "armed_ms", "deadline_ms")

    def __init__(self, action: Action) -> None:
        self.action = action
        self.deadline_ms: int | None = None
        self.armed_ms: int | None = None


class Deadlines(Generic[Action]):
    """All timers of one owner. Times are monotonic milliseconds, given by the caller."""

    __slots__ = ("_armed", "_heap", "_live")

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Timer[Action]]] = []
        self._armed = 0
        self._live = 0

    def set(self, timer: Timer[Action], deadline_ms: int) -> None:
        """Fire `timer` at `deadline_ms`, whatever it was set to before."""
        if timer.deadline_ms is None:
            self._live += 1
        timer.deadline_ms = deadline_ms
        if timer.armed_ms is None or deadline_ms < timer.armed_ms:
            self._arm(timer, deadline_ms)

    def cancel(self, timer: Timer[Action]) -> None:
        """Never fire `timer`, unless it is set again."""
        if timer.deadline_ms is not None:
            timer.deadline_ms = None
            self._live -= 1

    def put_off(self, by_ms: int) -> None:
        """Fire all timers that are set so much later."""
        # An entry of the heap may come up too early; so it stays where it is.
        for armed_ms, _, timer in self._heap:
            if timer.armed_ms == armed_ms and timer.deadline_ms is not None:
                timer.deadline_ms += by_ms

    def due(self, mono_ms: int) -> Iterator[Timer[Action]]:
        """Yield the timers whose time has come, unset; the caller may set and cancel timers in between."""
        heap = self._heap
        while heap and heap[0][0] <= mono_ms:
            armed_ms, _, timer = heapq.heappop(heap)
            if timer.armed_ms != armed_ms:
                continue
            timer.armed_ms = None
            if timer.deadline_ms is None:
                continue
            if timer.deadline_ms > mono_ms:
                self._arm(timer, timer.deadline_ms)
                continue
            self.cancel(timer)
            yield timer

    def next_deadline(self) -> int | None:
        """When to call `due` again: no later than the earliest deadline, perhaps earlier. None: no timer is set."""
        heap = self._heap
        while heap and (heap[0][2].armed_ms != heap[0][0] or heap[0][2].deadline_ms is None):
            armed_ms, _, timer = heapq.heappop(heap)
            if timer.armed_ms == armed_ms:
                timer.armed_ms = None
        return heap[0][0] if heap else None

    def __len__(self) -> int:
        """How many timers are set."""
        return self._live

    def _arm(self, timer: Timer[Action], deadline_ms: int) -> None:
        if len(self._heap) > _SMALL and len(self._heap) > 4 * self._live:
            self._sweep()
        self._armed += 1
        timer.armed_ms = deadline_ms
        heapq.heappush(self._heap, (deadline_ms, self._armed, timer))

    def _sweep(self) -> None:
        """Drop stale entries, so that members who join and leave all day do not pile up until their deadlines."""
        kept = []
        for entry in self._heap:
            armed_ms, _, timer = entry
            if timer.armed_ms != armed_ms:
                continue
            if timer.deadline_ms is None:
                timer.armed_ms = None
            else:
                kept.append(entry)
        heapq.heapify(kept)
        # The list stays the same object: `due` may be walking it.
        self._heap[:] = kept
