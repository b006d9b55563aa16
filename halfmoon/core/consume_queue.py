"""A partition's consume queue: from offsets to places in the log (B03).

It holds what dispatch has made visible: runs of older batches, most of them in mapped index files, and a growing tail.
`end_offset` is the offset after the last visible batch, which is the high watermark.

    run.end_offset ≤ next run.first_offset ≤ end_offset
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator

from halfmoon.core.index import Growing, IndexFile, Run


class ConsumeQueue:
    __slots__ = ("_firsts", "_runs", "damaged", "end_offset", "tail")

    def __init__(self, end_offset: int = 0) -> None:
        self.end_offset = end_offset
        self.tail: Growing | None = None
        self._runs: list[Run] = []
        self._firsts: list[int] = []
        self.damaged: list[tuple[int, int]] = []
        """Offset ranges [from, to) whose frames are lost to rot."""

    # -- growing ---------------------------------------------------------------------------------------------------

    def add(self, base: int, span: int, position: int, length: int, max_ms: int) -> None:
        """A batch has become visible."""
        tail = self.tail
        if tail is None:
            tail = self.tail = Growing()
        tail.add(base, position, length, max_ms, span)
        self.end_offset = base + span

    def freeze(self) -> Run | None:
        """Close the tail; its rows are a run from now on, and never change."""
        tail = self.tail
        if tail is None:
            return None
        self.tail = None
        run = Run(tail, 0, len(tail.base))
        self.attach(run)
        return run

    def attach(self, run: Run) -> None:
        """Put a run behind all others."""
        assert not self._runs or self._runs[-1].end_offset <= run.first_offset
        self._runs.append(run)
        self._firsts.append(run.first_offset)
        self.end_offset = max(self.end_offset, run.end_offset)

    def replace(self, old: Callable[[Run], bool], new: Run) -> None:
        """Put `new` in place of the consecutive runs that it holds the same rows as."""
        at = next((i for i, run in enumerate(self._runs) if old(run)), None)
        if at is None:  # expired meanwhile
            return
        upto = at
        while upto < len(self._runs) and old(self._runs[upto]):
            upto += 1
        self._runs[at:upto] = [new]
        self._firsts[at:upto] = [new.first_offset]

    def forget(self, file: IndexFile) -> None:
        """An index file goes with its segment."""
        kept = [run for run in self._runs if run.file is not file]
        self._runs = kept
        self._firsts = [run.first_offset for run in kept]

    # -- looking up ------------------------------------------------------------------------------------------------

    def runs(self) -> Iterator[Run]:
        yield from self._runs
        if self.tail is not None:
            yield Run(self.tail, 0, len(self.tail.base))

    def _runs_from(self, offset: int) -> Iterator[Run]:
        """The runs that may hold `offset` or what comes after it. The tail, where most readers are, costs one look."""
        tail = self.tail
        if tail is None or tail.base[0] > offset:
            runs = self._runs
            for at in range(max(0, bisect_right(self._firsts, offset) - 1), len(runs)):
                yield runs[at]
        if tail is not None:
            yield Run(tail, 0, len(tail.base))

    def places(self, offset: int, max_bytes: int, *, min_one: bool) -> list[tuple[int, int]]:
        """(log position, length) of the batches from the one that holds `offset` on, in all at most `max_bytes`.

        The first batch is given whatever its size if `min_one`.
        """
        found: list[tuple[int, int]] = []
        for run in self._runs_from(offset):
            row = run.row_for(offset)
            if row == run.high:
                continue
            before = run.before(row)
            total, position = run.columns.total, run.columns.position
            upto = bisect_right(total, before + max_bytes, row, run.high)
            if upto == row and min_one and not found:
                upto = row + 1
            for at in range(row, upto):
                after = total[at]
                found.append((position[at], after - before))
                max_bytes -= after - before
                before = after
            if upto < run.high:
                break
        return found

    def bytes_from(self, offset: int, enough: int) -> int:
        """Bytes that a reader at `offset` could get; stops counting at `enough`."""
        count = 0
        for run in self._runs_from(offset):
            row = run.row_for(offset)
            if row < run.high:
                count += run.bytes - run.before(row)
                if count >= enough:
                    break
        return count

    def places_for_time(self, timestamp_ms: int, start_offset: int) -> list[tuple[int, int]]:
        """(log position, length) of the batches to look into, in order, for the first record of `timestamp_ms` or later

        at or after `start_offset`: the first batch that has such a record, and, as long as a batch begins below
        `start_offset` and may have it there only, the one after it.
        """
        found = []
        for run in self.runs():
            if run.end_offset <= start_offset or run.max_ms < timestamp_ms:
                continue
            columns = run.columns
            for row in range(max(run.row_for_time(timestamp_ms), run.row_for(start_offset)), run.high):
                if columns.max_ms[row] >= timestamp_ms:
                    found.append((columns.position[row], columns.total[row] - run.before(row)))
                    if columns.base[row] >= start_offset:
                        return found
        return found

    def max_ms(self, start_offset: int) -> int | None:
        """The largest timestamp of the batches that begin at or after `start_offset`; None if none does."""
        best: int | None = None
        for run in self.runs():
            if run.end_offset <= start_offset:
                continue
            if run.first_offset >= start_offset:
                newest = run.max_ms
            else:
                newest = max((run.columns.max_ms[row] for row in range(run.row_for(start_offset), run.high)
                              if run.columns.base[row] >= start_offset), default=None)  # fmt: skip
            if newest is not None and (best is None or newest > best):
                best = newest
        return best

    def size_bytes(self) -> int:
        """Bytes of all batches that are still indexed."""
        return sum(run.bytes for run in self.runs())

    def damage_at(self, offset: int) -> bool:
        return any(low <= offset < high for low, high in self.damaged)
