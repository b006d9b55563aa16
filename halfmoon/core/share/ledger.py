"""Runs of offsets in equal states: what a share group remembers of one partition.

The runs lie end to end, from `start` (all below is finished) to `end` (nothing from there on was ever given out), and
no two neighbours are alike. So memory follows the number of differences and not that of records: a million records
that were acknowledged behind one that was not are two runs.

    start ≤ run.first < run.end = next run.first ≤ end

A change makes a new list and leaves the old one as it is, so a change that cannot be written down is taken back by
putting the old list in its place (`mark`, `back_to`).

Two kinds of ledger exist: the one in the catalog holds what control records have said, and never an acquired run; the
one of a running `SharePartition` also says who has acquired what, and until when.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable
from operator import attrgetter
from typing import NamedTuple

AVAILABLE = 0
ACQUIRED = 1
ACKNOWLEDGED = 2
REJECTED = 3
"""A dead letter is owed (KIP-1191: ARCHIVING), since a consumer has rejected the record."""
ARCHIVED = 4
EXHAUSTED = 5
"""A dead letter is owed, since the record was given out as often as the group allows."""

FINISHED = frozenset((ACKNOWLEDGED, ARCHIVED))
OWED = frozenset((REJECTED, EXHAUSTED))

STATE_NAMES = {
    AVAILABLE: "available",
    ACQUIRED: "acquired",
    ACKNOWLEDGED: "acknowledged",
    REJECTED: "rejected",
    ARCHIVED: "archived",
    EXHAUSTED: "exhausted",
}


class Run(NamedTuple):
    """The offsets [first, end). `deliveries`: how often they were given out, the present time included. `deadline_ms`
    (monotonic) and `member` are those of acquired ones."""

    first: int
    end: int
    state: int
    deliveries: int = 0
    member: str = ""
    deadline_ms: int = 0


Mark = tuple[int, list[Run]]
Saved = tuple[int, int, int, int]
"""First offset, end, state, count: a run as it is written down."""

_first = attrgetter("first")


class Ledger:
    __slots__ = ("runs", "start")

    def __init__(self, start: int, saved: Iterable[Saved] = ()) -> None:
        self.start = start
        self.runs: list[Run] = []
        for run in saved:
            self.put(*run)

    @property
    def end(self) -> int:
        return self.runs[-1].end if self.runs else self.start

    def mark(self) -> Mark:
        return self.start, self.runs

    def back_to(self, mark: Mark) -> None:
        self.start, self.runs = mark

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
            runs = list(self.runs)
            append(runs, Run(self.end, end, AVAILABLE))
            self.runs = runs

    def change(self, first: int, end: int, how: Callable[[Run], Run]) -> None:
        """Replace the parts of runs that lie in [first, end) by what `how` makes of each of them."""
        runs = self.runs
        low = max(0, bisect_right(runs, first, key=_first) - 1)
        made = runs[:low]
        at = low
        while at < len(runs) and runs[at].first < end:
            run = runs[at]
            at += 1
            if run.end <= first:
                append(made, run)
                continue
            if run.first < first:
                append(made, run._replace(end=first))
                run = run._replace(first=first)
            rest = None
            if run.end > end:
                rest = run._replace(first=end)
                run = run._replace(end=end)
            append(made, how(run))
            if rest is not None:
                append(made, rest)
        if at < len(runs):
            append(made, runs[at])
            made += runs[at + 1 :]
        self.runs = made

    def put(self, first: int, end: int, state: int, count: int) -> None:
        """These offsets are in that state, whatever was known of them; what lies between them and the others was never
        given out."""
        if first < self.start:  # a record that is applied again; the one that follows puts it right
            self._reach_down(first)
        self.reach(end)
        self.change(first, end, lambda run: Run(run.first, run.end, state, count))

    def _reach_down(self, first: int) -> None:
        made = [Run(first, self.start, AVAILABLE)]
        if self.runs:
            append(made, self.runs[0])
        self.runs = made + self.runs[1:]
        self.start = first

    def begin_at(self, start: int) -> None:
        """Nothing below `start` counts any more."""
        if start >= self.end:
            self.runs = []
        elif start < self.start:
            self._reach_down(start)
        else:
            at = bisect_right(self.runs, start, key=_first) - 1
            self.runs = [self.runs[at]._replace(first=start), *self.runs[at + 1 :]]
        self.start = start

    def finish(self) -> None:
        """Let the start move over what is finished."""
        at = 0
        for run in self.runs:
            if run.state not in FINISHED:
                break
            at += 1
        if at:
            self.start = self.runs[at - 1].end
            self.runs = self.runs[at:]


def append(runs: list[Run], run: Run) -> None:
    """Put a run behind the others, as a part of the last one if they are alike."""
    if runs:
        last = runs[-1]
        if last[2:] == run[2:] and last.end == run.first:
            runs[-1] = last._replace(end=run.end)
            return
    runs.append(run)
