"""Runs of offsets in equal states: what a share group remembers of one partition.

The runs lie end to end, from `start` (all below is finished) to `end` (nothing from there on was ever given out), and
no two neighbours are alike.

    start ≤ run.first < run.end = next run.first ≤ end

*Finished* is one state, whether a record was accepted, rejected, or never was one (a marker, a hole): nobody needs the
difference, and so all that is finished between two unfinished records is one run. There are at most two runs for each
record that is not finished, which a limit of locks bounds, however many are finished behind it.

A change makes a new list and leaves the old one as it is, so a change that cannot be written down is taken back by
putting the old list in its place (`mark`, `back_to`). It is made in one pass, however many stretches it has.

There are two kinds: the one in the catalog holds what control records have said, and never an acquired run; the
one of a running `SharePartition` also says who has acquired what, and until when.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable
from operator import attrgetter
from typing import NamedTuple

AVAILABLE = 0
ACQUIRED = 1
FINISHED = 2
REJECTED = 3
"""Its dead letter is pending (KIP-1191: ARCHIVING), since a consumer has rejected the record."""
EXHAUSTED = 4
"""Its dead letter is pending, since the record was given out as often as the group allows."""
EXPIRED = 5
"""Its dead letter is pending, since the record's TTL was over before somebody had it."""

DEAD_LETTER_PENDING = frozenset((REJECTED, EXHAUSTED, EXPIRED))
STATE_NAMES = ("available", "acquired", "finished", "rejected", "exhausted", "expired")


class Run(NamedTuple):
    """The offsets [first, end). `deliveries`: how often they were given out, the present time included. `deadline_ms`
    (monotonic) and `member` are those of acquired ones."""

    first: int
    end: int
    state: int
    deliveries: int = 0
    member: str = ""
    deadline_ms: int = 0


Mark = tuple[int, list[Run], list[int]]
Saved = tuple[int, int, int, int]
"""First offset, end, state, count: a run as it is written down."""
Settle = Callable[[Run, int], Run]

_first = attrgetter("first")


class DeliveryState:
    __slots__ = ("counts", "runs", "start")

    def __init__(self, start: int, saved: Iterable[Saved] = ()) -> None:
        self.start = start
        self.runs: list[Run] = []
        self.counts = [0] * len(STATE_NAMES)
        """State → how many offsets are in it."""
        self.put(saved)

    @property
    def end(self) -> int:
        return self.runs[-1].end if self.runs else self.start

    @property
    def finished_above(self) -> int:
        """Records that are finished although one before them is not."""
        return self.counts[FINISHED]

    @property
    def dead_letters_pending(self) -> bool:
        """Whether dead letters are to be written."""
        return any(self.counts[state] for state in DEAD_LETTER_PENDING)

    def mark(self) -> Mark:
        return self.start, self.runs, list(self.counts)

    def back_to(self, mark: Mark) -> None:
        self.start, self.runs, counts = mark
        self.counts = list(counts)

    def saved(self) -> list[Saved]:
        """To be written down; who has acquired what is not."""
        return [run[:4] for run in self.runs]

    def between(self, first: int, end: int) -> list[Run]:
        """The runs that have offsets in [first, end), whole."""
        runs = self.runs
        low = max(0, bisect_right(runs, first, key=_first) - 1)
        found = []
        for at in range(low, len(runs)):
            run = runs[at]
            if run.first >= end:
                break
            if run.end > first:
                found.append(run)
        return found

    def reach(self, end: int) -> None:
        """Make offsets up to `end` known, as available and never given out."""
        if end > self.end:
            self.counts[AVAILABLE] += end - self.end
            runs = list(self.runs)
            append(runs, Run(self.end, end, AVAILABLE))
            self.runs = runs

    def change(self, stretches: Iterable[tuple[int, int, int]], how: Settle) -> None:
        """Replace the parts of runs that lie in (first, end, what) by what `how` makes of each of them, given the
        stretch's `what`. The stretches ascend and do not overlap."""
        runs, made, counts = self.runs, list[Run](), self.counts
        size, at = len(runs), 0
        rest: Run | None = None
        """What the stretch before has left of a run; `at` is the one behind it."""
        for first, end, what in stretches:
            if rest is not None and rest[1] <= first:
                append(made, rest)
                rest = None
            if rest is None and at < size and runs[at][1] <= first:  # else the next run it is
                low = bisect_right(runs, first, at, key=_first) - 1
                _extend(made, runs, at, low)
                at = low
            while rest is not None or at < size:
                if rest is None:
                    rest = runs[at]
                    at += 1
                low, high = rest[:2]
                if low >= end:
                    break
                if high <= first:
                    append(made, rest)
                    rest = None
                    continue
                if low < first:
                    append(made, Run(low, first, *rest[2:]))
                    low = first
                piece = rest if low == rest[0] and high <= end else Run(low, min(high, end), *rest[2:])
                rest = None if high <= end else Run(end, high, *rest[2:])
                settled = how(piece, what)
                count = piece[1] - low
                counts[piece[2]] -= count
                counts[settled[2]] += count
                append(made, settled)
        if rest is not None:
            append(made, rest)
        _extend(made, runs, at, len(runs))
        self.runs = made

    def put(self, changes: Iterable[Saved]) -> None:
        """These offsets, which ascend, are in these states, whatever was known of them; what lies between them and the
        others was never given out. A finished one has no deliveries, whatever is said: see above."""
        changes = list(changes)
        if not changes:
            return
        if changes[0][0] < self.start:  # a record that is applied again; the one that follows puts it right
            self._reach_down(changes[0][0])
        self.reach(changes[-1][1])
        said = [(state, 0 if state == FINISHED else count) for _, _, state, count in changes]
        self.change(
            ((first, end, at) for at, (first, end, _, _) in enumerate(changes)),
            lambda run, at: Run(run.first, run.end, *said[at]),
        )

    def _reach_down(self, first: int) -> None:
        self.counts[AVAILABLE] += self.start - first
        made = [Run(first, self.start, AVAILABLE)]
        _extend(made, self.runs, 0, len(self.runs))
        self.runs = made
        self.start = first

    def begin_at(self, start: int) -> None:
        """Nothing below `start` counts any more."""
        if start < self.start:
            self._reach_down(start)
        elif start < self.end:
            at = bisect_right(self.runs, start, key=_first) - 1
            self._leave(at)
            run = self.runs[0]
            self.counts[run.state] -= start - run.first
            self.runs = [run._replace(first=start), *self.runs[1:]]
        else:
            self._leave(len(self.runs))
        self.start = start

    def finish(self) -> None:
        """Let the start move over what is finished."""
        if self.runs and self.runs[0].state == FINISHED:
            self.start = self.runs[0].end
            self._leave(1)

    def _leave(self, count: int) -> None:
        """Forget so many of the first runs."""
        if count:
            for run in self.runs[:count]:
                self.counts[run.state] -= run.end - run.first
            self.runs = self.runs[count:]


def append(runs: list[Run], run: Run) -> None:
    """Put a run behind the others, as a part of the last one if they are alike."""
    if runs:
        last = runs[-1]
        if last[1] == run[0] and last[2] == run[2] and last[3:] == run[3:]:
            runs[-1] = Run(last[0], *run[1:])
            return
    runs.append(run)


def _extend(made: list[Run], runs: list[Run], low: int, high: int) -> None:
    """Put some runs, as they are, behind the others."""
    if low < high:
        append(made, runs[low])
        made += runs[low + 1 : high]
