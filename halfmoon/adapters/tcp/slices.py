"""Long requests are worked at in slices, between which others have their turn.

Such work is a generator that yields None wherever it may be interrupted, every few tenths of a millisecond. Most of it
ends in the turn of its connection. What does not goes on in later turns of the loop, `MOST` requests by turns and the
others in their order behind them. All of them together count as one connection more (`round_time`), so a turn of the
loop has some milliseconds of them however many there are, and only a few are objects in memory at a time.

The order of a connection's requests is the connection's: it handles none while one of its own is under way. What a
slice has changed in the log is written with the turn that it was in.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator
from typing import Any, Final

from halfmoon.adapters.tcp.round_time import RoundTime

MOST: Final = 4
"""Requests that are worked at by turns."""

Work = Generator[None, None, Any]


def _nobody(_: object) -> None: ...


class Job:
    """Work that goes on."""

    __slots__ = ("_done", "_failed", "_work")

    def __init__(self, work: Work, done: Callable[[Any], None], failed: Callable[[Exception], None]) -> None:
        self._work: Work | None = work
        self._done = done
        self._failed = failed

    @property
    def goes_on(self) -> bool:
        return self._work is not None

    def cancel(self) -> None:
        """Nobody is there for it any more: it goes no further, and nobody is told."""
        work, self._work = self._work, None
        if work is not None:
            work.close()

    def run(self, is_over: Callable[[float], bool], until: float) -> bool:
        """A slice: one step at least. Whether it was the last."""
        work = self._work
        if work is None:
            return True
        try:
            next(work)
            while not is_over(until):
                next(work)
        except StopIteration as end:
            self._end(self._done, end.value)
        except Exception as error:
            self._end(self._failed, error)
        return self._work is None

    def _end(self, tell: Callable[[Any], None], value: Any) -> None:
        self._work, self._done, self._failed = None, _nobody, _nobody  # whom they know is not to be kept
        tell(value)


class Slicing:
    """Of one listener. `round_time`: asked for each time, so that a test may put another in its place."""

    def __init__(self, call_soon: Callable[[Callable[[], None]], object], round_time: Callable[[], RoundTime]) -> None:
        self._call_soon = call_soon
        self.round_time = round_time
        self._active: deque[Job] = deque()
        self._waiting: deque[Job] = deque()
        self._scheduled = False
        self.turns = 0
        """In which there was something left to be done."""

    def begin(
        self,
        work: Work,
        done: Callable[[Any], None],
        failed: Callable[[Exception], None],
        until: float,
        *,
        may_wait: bool = False,
    ) -> Job:
        """Work until this time, then in slices; `done(result)` or `failed(error)` is called once, now or later, unless
        it is cancelled. `may_wait`: until it is its turn; else its first step is taken at once, because what it reads
        may not be there later."""
        job = Job(work, done, failed)
        is_over = self.round_time().is_over
        waits = may_wait and (is_over(until) or len(self._active) >= MOST)
        if waits or not job.run(is_over, until):
            (self._active if len(self._active) < MOST else self._waiting).append(job)
            self._schedule()
        return job

    def _schedule(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            self._call_soon(self._turn)

    def _turn(self) -> None:
        self._scheduled = False
        self.turns += 1
        round_time = self.round_time()
        until = round_time.begin()
        active = self._active
        while active:
            job = active.popleft()
            if not job.run(round_time.is_over, until):
                active.append(job)
            elif self._waiting:
                active.append(self._waiting.popleft())
            if round_time.is_over(until):
                break
        if active:
            self._schedule()
