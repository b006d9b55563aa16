"""Relays: whatever moves messages from one queue to another takes turns here (B41).

A *mover* is one line of such work, such as one partition of a view. Its `run` is a generator that does a bounded piece
of work between two yields, so that nobody who waits for an answer waits for a backlog. It yields None to pause, or a
function that must run in a thread (it reads from the disk), whose result comes back from the yield. It returns when
there is nothing left to move, and is run anew once it is woken.

Exactly one effect is not made here but where a mover appends: a relayed batch and its provenance are one frame, and
what is still to be moved is worked out from provenance alone (schema/provenance.py).

A mover that raises is tried again after a pause that doubles, because what it met may pass (a full disk). Nothing is
lost meanwhile.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Generator, Hashable
from typing import Any, Final, Literal, Protocol

from msgspec import Struct

from halfmoon.core.clock import Clock
from halfmoon.errors import BrokerError, Fault, HalfmoonError

FIRST_PAUSE_MS: Final = 1_000
LONGEST_PAUSE_MS: Final = 60_000
WAIT_MS: Final = 50
MOST_WAITS: Final = 40
"""A partition that is somewhere else now, or a topic that is being made: after so many pauses it is a failure."""

Load = Callable[[], Any]
"""Slow and for a thread. Raises OSError, or BrokerError."""


def tried(load: Load) -> Load:
    """The same, but an OSError is returned: for a mover that goes on without what it could not read. (One that is
    raised ends the run.)"""

    def run() -> Any:
        try:
            return load()
        except OSError as error:
            return error

    return run


class Mover(Protocol):
    """One line of work."""

    def run(self) -> Generator[Load | None, Any, None]: ...


_State = Literal["idle", "ready", "loading", "resting", "removed"]
"""Resting: it has failed; an entry of `_resting` says until when."""


class _Turn:
    """Where a mover stands."""

    __slots__ = ("failures", "key", "mover", "problem", "running", "state", "value", "waits", "woken")

    def __init__(self, key: Hashable, mover: Mover) -> None:
        self.key = key
        self.mover = mover
        self.running: Generator[Load | None, Any, None] | None = None
        self.value: Any = None
        self.state: _State = "idle"
        self.woken = False
        """Somebody has called for it while it was at work."""
        self.failures = 0
        self.waits = 0
        """For what will be there in a moment."""
        self.problem = ""


class Loading(Struct, frozen=True):
    """Run `load` in a thread, then hand `loaded` its result, or `failed` what it raised."""

    load: Load
    loaded: Callable[[Any], None]
    failed: Callable[[Exception], None]


class Relays:
    """All movers of a broker."""

    def __init__(self, clock: Clock, logger: logging.Logger) -> None:
        self._clock = clock
        self._logger = logger
        self._turns: dict[Hashable, _Turn] = {}
        self._ready: deque[_Turn] = deque()
        self._resting: dict[_Turn, int] = {}
        """Until when (monotonic ms)."""
        self._alarms: dict[_Turn, int] = {}
        """When to be woken (monotonic ms)."""
        self._failing: dict[_Turn, None] = {}
        """Those that failed and have not come to their end since."""
        self.on_ready: Callable[[], None] = lambda: None
        """Called when there is a first thing to do: call `step` from now on, until `has_work` says that there is
        none."""
        self.on_deadline: Callable[[int], None] = lambda deadline_ms: None
        """Called with a monotonic time at which `expire` has something to do."""

    # -- movers ------------------------------------------------------------------------------------------------------

    def add(self, key: Hashable, mover: Mover) -> None:
        """Take in a mover, and let it look at once."""
        assert key not in self._turns
        turn = self._turns[key] = _Turn(key, mover)
        self._make_ready(turn)

    def remove(self, key: Hashable) -> None:
        """Forget a mover, whatever it is at."""
        turn = self._turns.pop(key, None)
        if turn is not None:
            turn.state = "removed"
            self._stop(turn)
            self._resting.pop(turn, None)
            self._alarms.pop(turn, None)
            self._failing.pop(turn, None)

    def _stop(self, turn: _Turn) -> None:
        if turn.running is not None:
            turn.running.close()
            turn.running = turn.value = None

    def wake(self, key: Hashable) -> None:
        """There may be something to move. Cheap."""
        turn = self._turns.get(key)
        if turn is not None:
            turn.woken = True
            if turn.state == "idle":
                self._make_ready(turn)

    def wake_at(self, key: Hashable, mono_ms: int) -> None:
        """Wake it at that time, instead of any other time that was set before."""
        turn = self._turns.get(key)
        if turn is not None:
            self._alarms[turn] = mono_ms
            self.on_deadline(mono_ms)

    def wake_alarms(self) -> None:
        """The wall clock has leapt: whoever has an alarm looks again at what time it is."""
        for turn in list(self._alarms):
            self.wake(turn.key)

    def _make_ready(self, turn: _Turn) -> None:
        turn.state = "ready"
        self._ready.append(turn)
        if len(self._ready) == 1:
            self.on_ready()

    # -- working -----------------------------------------------------------------------------------------------------

    @property
    def has_work(self) -> bool:
        return bool(self._ready)

    @property
    def is_idle(self) -> bool:
        """Nothing is to be done now, and nothing is read in a thread."""
        return not self._ready and all(turn.state != "loading" for turn in self._turns.values())

    def step(self) -> Loading | None:
        """One bounded piece of work of the mover whose turn it is. What is returned is to be run in a thread."""
        turn = self._ready.popleft()
        if turn.state != "ready":
            return None
        try:
            if turn.running is None:
                turn.woken = False
                turn.running = turn.mover.run()
            value, turn.value = turn.value, None
            load = turn.running.send(value)
        except StopIteration:
            turn.running = None
            self._ended(turn)
            return None
        except (Exception, SystemExit) as error:  # a plugin's mover may say exit()
            self._failed(turn, error)
            return None
        if load is None:
            self._ready.append(turn)
            return None
        turn.state = "loading"
        return Loading(load, lambda value: self._loaded(turn, value), lambda error: self._load_failed(turn, error))

    def _ended(self, turn: _Turn) -> None:
        turn.waits = 0
        if turn.failures:
            turn.failures = 0
            del self._failing[turn]
        turn.state = "idle"
        if turn.woken:
            self._make_ready(turn)

    def _loaded(self, turn: _Turn, value: Any) -> None:
        if turn.state == "loading":
            turn.value = value
            self._make_ready(turn)

    def _load_failed(self, turn: _Turn, error: Exception) -> None:
        if turn.state == "loading":
            self._failed(turn, error)

    def _failed(self, turn: _Turn, error: Exception | SystemExit) -> None:
        self._stop(turn)
        turn.state = "resting"
        if isinstance(error, BrokerError) and error.fault is Fault.NOT_LEADER_OR_FOLLOWER and turn.waits < MOST_WAITS:
            turn.waits += 1
            self._rest(turn, WAIT_MS)
            return
        turn.failures += 1
        expected = isinstance(error, HalfmoonError | OSError)
        turn.problem = f"{turn.mover}: {error if expected else repr(error)}"
        pause_ms = min(FIRST_PAUSE_MS << min(turn.failures - 1, 16), LONGEST_PAUSE_MS)
        self._failing[turn] = None
        self._logger.error(
            "event=relay_failed relay=%s pause_ms=%d reason=%s", turn.mover, pause_ms, error,
            exc_info=None if expected else error,
        )  # fmt: skip
        self._rest(turn, pause_ms)

    def _rest(self, turn: _Turn, pause_ms: int) -> None:
        until_ms = self._resting[turn] = self._clock.mono_ms() + pause_ms
        self.on_deadline(until_ms)

    # -- time --------------------------------------------------------------------------------------------------------

    def next_deadline(self) -> int | None:
        """When `expire` has work (monotonic ms)."""
        return min((*self._resting.values(), *self._alarms.values()), default=None)

    def expire(self, now_ms: int) -> None:
        """Let those try again whose pause is over, and wake whose time has come."""
        for turn in [turn for turn, until_ms in self._resting.items() if until_ms <= now_ms]:
            del self._resting[turn]
            self._make_ready(turn)
        for turn in [turn for turn, at_ms in self._alarms.items() if at_ms <= now_ms]:
            del self._alarms[turn]
            self.wake(turn.key)

    def problems(self) -> list[str]:
        """A sentence for each mover that failed and has not come to its end since."""
        return [turn.problem for turn in self._failing]
