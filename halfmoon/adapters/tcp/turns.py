"""The longest turns of the loop's thread, and what caused them.

A *turn* is what the loop does in one go: the requests of one connection until others come first, a tick, a timer, a
step of an HTTP answer. Everybody waits for its end. Two numbers are kept of each cause: the CPU time that the thread
used in its longest turn, which no other process on the machine can make longer, and the time on the clock.

The CPU clock of a thread is a system call, up to a hundred times as slow as the wall clock. So it is looked at seldom:

    begin ── a wall time that the caller has ──► older than LOOK_S? then look at the CPU clock
    end   ── wall time since begin            ──► more than LOOK_S? then look at the CPU clock, and note the turn

The CPU time of a turn is therefore up to LOOK_S too large, and never more than its wall time. Turns of less than LOOK_S
are not noted.

What is longest is forgotten after a while: WINDOW_S and at most twice as long, whoever reads it and how often.

A *round* is what the loop does between two looks for events. `at_end` calls back when all of them are handled: for
everybody together, since each call that the loop is asked for costs a microsecond.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from time import perf_counter, thread_time
from typing import Final, NamedTuple

log: Final = logging.getLogger("halfmoon.server")

LOOK_S: Final = 0.002
WINDOW_S: Final = 60.0

SLOW_S: Final = 0.1
"""A turn that uses more CPU than this is logged, …"""
LOGGED_S: Final = 60.0
"""… once in this time for each cause."""

CONNECTION: Final = "connection"
"""A cause: connections that come and go. A request is the cause by its name."""
PLUGIN: Final = "plugin"
TICK: Final = "tick"
"""Writing, syncing and answering."""


class Longest(NamedTuple):
    """Of the turns of one cause. The two may be of different turns."""

    cpu_s: float
    wall_s: float


class _Part(NamedTuple):
    begun_s: float
    wall_s: float
    cause: str


class Turns:
    """Of one loop; everything is called in its thread."""

    def __init__(self, now: Callable[[], float] = perf_counter, cpu: Callable[[], float] = thread_time) -> None:
        """`now`: the clock that callers of `begin` have looked at; `cpu`: what this thread has used. In seconds."""
        self.now = now
        self.cpu_now = cpu
        self.begun_s = 0.0
        self.look_s = 0.0
        """From then on `begin` looks at the CPU clock."""
        self.cpu_s = 0.0
        """The CPU clock when it was looked at last, before the turn that is under way."""
        self.quick_soon: Callable[[Callable[[], None]], object] | None = None
        """The loop's `call_soon` for what is over at once, or measures itself; None: it has no other."""
        self.on_look: Callable[[float], object] | None = None
        """Told the wall time when the CPU clock was looked at: after a while in which nothing ran, before anything
        else does."""
        self._ends: list[Callable[[], None]] = []
        """To be called at the end of the round."""
        self.paused = False
        """Nothing is noted: the broker starts or stops, and no client waits."""
        self._parts: deque[_Part] = deque(maxlen=8)
        """Noted last; some may be parts of the turn that is under way."""
        self._window_s = 0.0
        self._found: dict[str, Longest] = {}
        self._found_before: dict[str, Longest] = {}
        self._logged: dict[str, float] = {}

    def soon(self, call_soon: Callable[[Callable[[], None]], object]) -> Callable[[Callable[[], None]], object]:
        """How to be called at the end of the round: `at_end`, or by the loop's `call_soon` where it has no other."""
        return call_soon if self.quick_soon is None else self.at_end

    def at_end(self, callback: Callable[[], None]) -> None:
        """Call back at the end of the round. Within that: at the end of the next."""
        if not self._ends:
            assert self.quick_soon is not None
            self.quick_soon(self._end)
        self._ends.append(callback)

    def _end(self) -> None:
        ends, self._ends = self._ends, []
        for callback in ends:
            try:
                callback()
            except Exception:
                log.exception("event=callback_failed")

    def begin(self, now_s: float) -> None:
        """A turn begins. Not to be called within another."""
        self.begun_s = now_s
        if now_s >= self.look_s:
            self.cpu_s = self.cpu_now()
            self.look_s = now_s + LOOK_S
            if self.on_look is not None:
                self.on_look(now_s)

    def took(self, cause: str, begun_s: float, cpu_before_s: float | None = None) -> None:
        """A turn, or a part of one with a cause of its own, is over and has taken more than LOOK_S. A part counts as a
        turn, and gives its cause to the whole where it is half of it."""
        if self.paused:
            return
        now_s = self.now()
        wall_s = now_s - begun_s
        used_s = self.cpu_now() - (self.cpu_s if cpu_before_s is None else cpu_before_s)
        parts = [part for part in self._parts if part.begun_s >= begun_s]
        if parts:
            most = max(parts, key=lambda part: part.wall_s)
            if most.wall_s * 2 >= wall_s:
                cause = most.cause
        self._parts.append(_Part(begun_s, wall_s, cause))
        self._note(cause, now_s, Longest(min(used_s, wall_s), wall_s))

    def longest(self) -> dict[str, Longest]:
        """By cause, of the last WINDOW_S at least."""
        self._roll(self.now())
        found = dict(self._found_before)
        for cause, longest in self._found.items():
            found[cause] = _longer(longest, found.get(cause))
        return found

    def forget(self) -> None:
        """Begin anew."""
        self._found, self._found_before = {}, {}

    def _note(self, cause: str, now_s: float, turn: Longest) -> None:
        self._roll(now_s)
        self._found[cause] = _longer(turn, self._found.get(cause))
        if turn.cpu_s > SLOW_S and now_s - self._logged.get(cause, -LOGGED_S) >= LOGGED_S:
            self._logged[cause] = now_s
            log.warning("event=long_turn cause=%s cpu_ms=%d wall_ms=%d", cause, turn.cpu_s * 1_000, turn.wall_s * 1_000)

    def _roll(self, now_s: float) -> None:
        over_s = now_s - self._window_s
        if over_s >= WINDOW_S:
            self._found_before = self._found if over_s < 2 * WINDOW_S else {}
            self._found = {}
            self._window_s = now_s


def _longer(turn: Longest, other: Longest | None) -> Longest:
    if other is None:
        return turn
    return Longest(max(turn.cpu_s, other.cpu_s), max(turn.wall_s, other.wall_s))
