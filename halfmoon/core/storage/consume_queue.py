"""A partition's consume queue: from offsets to places in the log (B03).

It holds what dispatch has made visible: runs of older batches, most of them in mapped index files, and a growing tail.
The oldest may stand in clean files (core/clean_files.py); then their places lie behind those of the log.
`end_offset` is the offset after the last visible batch, which is the high watermark.

    run.end_offset ≤ next run.first_offset ≤ end_offset
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from typing import Final

from halfmoon.core.storage.index import Growing, IndexFile, Run

MOST_RECORDS: Final = ((1 << 31) - 1) // 7
"""No batch has more: it has less than 2 GiB, and a record 7 bytes. Versions before 0.3 stored batches that say so."""

MOST_PLACES = 8_192
"""Batches that are found in one go, so that a reader of batches of one record holds up nobody: a microsecond each, and
another for whoever sends them."""


class ConsumeQueue:
    __slots__ = ("_firsts", "_moved_upto", "_runs", "damaged", "end_offset", "tail")

    def __init__(self, end_offset: int = 0) -> None:
        self.end_offset = end_offset
        self.tail: Growing | None = None
        self._runs: list[Run] = []
        self._firsts: list[int] = []
        self._moved_upto = 0
        """What is below it stands in clean files."""
        self.damaged: list[tuple[int, int]] = []
        """Offset ranges [from, to) whose frames are lost to rot."""

    # -- growing ---------------------------------------------------------------------------------------------------

    def add(self, base: int, span: int, position: int, length: int, max_ms: int) -> None:
        """A batch has become visible."""
        tail = self.tail
        if tail is None:
            tail = self.tail = Growing(self._runs[-1].total_after if self._runs else 0)
        tail.add(base, position, length, max_ms, span)
        self.end_offset = base + span

    def freeze(self) -> Run | None:
        """Close the tail; its rows are a run from now on, and never change."""
        tail = self.tail
        if tail is None:
            return None
        self.tail = None
        run = Run(tail, 0, len(tail.base), tail.before)
        self.attach(run)
        return run

    def attach(self, run: Run) -> None:
        """Put a run behind all others."""
        assert not self._runs or self._runs[-1].end_offset <= run.first_offset
        self._runs.append(run)
        self._firsts.append(run.first_offset)
        self.end_offset = max(self.end_offset, run.end_offset)

    def replace(self, old: Callable[[Run], bool], new: Run) -> None:
        """Put `new` in place of the consecutive runs that it holds the same rows as, or more; nothing where they have
        expired."""
        left = new.behind(self._moved_upto)
        if left is None:
            return
        at = upto = bisect_left(self._firsts, left.first_offset)
        while upto < len(self._runs) and old(self._runs[upto]):
            upto += 1
        if at < upto:
            self._runs[at:upto] = [left]
            self._firsts[at:upto] = [left.first_offset]

    def forget(self, file: IndexFile) -> None:
        """An index file goes with its segment."""
        self._runs = [run for run in self._runs if run.file is not file]
        self._firsts = [run.first_offset for run in self._runs]

    def drop_runs(self) -> None:
        """Nobody reads it any more: do not keep files open until the collector comes."""
        self._runs, self._firsts = [], []

    def reaches_below(self, offset: int) -> bool:
        """Whether the growing tail does."""
        return self.tail is not None and self.tail.base[0] < offset

    def put_cleaned(self, cleaned: list[Run], moved_upto: int) -> None:
        """What lives below `moved_upto` stands in these runs of clean files, which follow one another."""
        assert not self.reaches_below(moved_upto)
        self._moved_upto = moved_upto
        for run in self._runs:
            left = None if run.in_clean_file else run.behind(moved_upto)
            if left is not None:
                cleaned.append(left)
        self._runs = cleaned
        self._firsts = [run.first_offset for run in cleaned]

    def lose(self, low: int, high: int) -> None:
        """What stood at the offsets [low, high) is lost to rot."""
        if low >= high:
            return
        merged: list[tuple[int, int]] = []
        for begin, end in sorted([*self.damaged, (low, high)]):
            if merged and begin <= merged[-1][1]:
                merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
            else:
                merged.append((begin, end))
        self.damaged = merged

    def regain(self, low: int, high: int) -> None:
        """What stands at the offsets [low, high) is whole again."""
        left = [part for begin, end in self.damaged for part in ((begin, min(end, low)), (max(begin, high), end))]
        self.damaged = [(begin, end) for begin, end in left if begin < end]

    def forget_damage(self, start_offset: int) -> None:
        """Nobody asks for offsets below `start_offset` any more."""
        self.damaged = [(low, high) for low, high in self.damaged if high > start_offset]

    # -- looking up ------------------------------------------------------------------------------------------------

    def runs(self) -> Iterator[Run]:
        """All runs, oldest first."""
        yield from self._runs
        if self.tail is not None:
            yield Run(self.tail, 0, len(self.tail.base), self.tail.before)

    def runs_from(self, offset: int) -> Iterator[Run]:
        """The runs that may hold `offset` or what comes after it. The tail, where most readers are, costs one look."""
        tail = self.tail
        if tail is None or tail.base[0] > offset:
            runs = self._runs
            for at in range(max(0, bisect_right(self._firsts, offset) - 1), len(runs)):
                yield runs[at]
        if tail is not None:
            yield Run(tail, 0, len(tail.base), tail.before)

    def places(
        self, offset: int, max_bytes: int, *, min_one: bool, before: int | None = None, readable: bool = False
    ) -> list[tuple[int, int]]:
        """(log position, length) of the batches from the one that holds `offset` on, MOST_PLACES of them and in all
        `max_bytes` at most, up to the one that holds the offset `before`, if that is given.

        The first batch is given whatever its size if `min_one`. What is lost to rot is not skipped: reading ends
        before it. `readable` leaves out batches that count more records than any has: their reader would not get past
        them.
        """
        if self.damaged:
            lost = next((low for low, _ in self.damaged if low > offset), None)
            if lost is not None:
                before = lost if before is None else min(lost, before)
        found: list[tuple[int, int]] = []
        for run in self.runs_from(offset):
            row = run.row_for(offset)
            if readable:
                row = _first_sound(run, row)
            if row == run.high:
                continue
            high = run.high if before is None else run.row_for(before)
            taken = run.before(row)
            total, position, span = run.columns.total, run.columns.position, run.columns.span
            upto = bisect_right(total, taken + max_bytes, row, max(row, high))
            if upto == row and row < high and min_one and not found:
                upto = row + 1
            upto = min(upto, row + MOST_PLACES - len(found))
            for at in range(row, upto):
                after = total[at]
                if not readable or span[at] <= MOST_RECORDS:
                    found.append((position[at], after - taken))
                max_bytes -= after - taken
                taken = after
            if upto < run.high:
                break
        return found

    def rows_upto(self, offset: int, end_offset: int, max_bytes: int) -> list[tuple[int, int, int, int]]:
        """(first offset, span, log position, length) of the batches from the one that holds `offset` on that begin
        below `end_offset`, in all at most `max_bytes`, but the first whatever its size. Ends before what is lost to
        rot."""
        end_offset = min([end_offset, *(low for low, _ in self.damaged if low > offset)])
        found: list[tuple[int, int, int, int]] = []
        for run in self.runs_from(offset):
            row = run.row_for(offset)
            if row == run.high:
                continue
            columns = run.columns
            upto = bisect_left(columns.base, end_offset, row, run.high)
            before = run.before(row)
            for at in range(row, upto):
                length = columns.total[at] - before
                if found and length > max_bytes:
                    return found
                found.append((columns.base[at], columns.span[at], columns.position[at], length))
                max_bytes -= length
                before = columns.total[at]
            if upto < run.high:
                break
        return found

    def last_base(self) -> int:
        """Where the last visible batch begins; the end where there is none."""
        if self.tail is not None:
            return self.tail.base[-1]
        if self._runs:
            last = self._runs[-1]
            return last.columns.base[last.high - 1]
        return self.end_offset

    def span_at(self, base: int) -> int:
        """How many offsets the batch takes that begins at `base`; 0 where none does."""
        for run in self.runs_from(base):
            row = run.row_for(base)
            if row < run.high:
                return run.columns.span[row] if run.columns.base[row] == base else 0
        return 0

    def bytes_from(self, offset: int, enough: int, before: int | None = None) -> int:
        """Bytes that a reader at `offset` could get, up to the batch that holds `before`; stops counting at
        `enough`."""
        count = 0
        for run in self.runs_from(offset):
            row = _first_sound(run, run.row_for(offset))
            high = run.high if before is None else run.row_for(before)
            if row < high:
                count += run.columns.total[high - 1] - run.before(row)
            if count >= enough or high < run.high:
                break
        return count

    def offset_after(self, offset: int, size: int) -> int:
        """The offset behind the batches that make up `size` bytes from the one on that holds `offset`."""
        after = offset
        for run in self.runs_from(offset):
            row = run.row_for(offset)
            if row == run.high:
                continue
            columns = run.columns
            before = run.before(row)
            at = bisect_left(columns.total, before + size, row, run.high - 1)
            after = columns.base[at] + columns.span[at]
            size -= columns.total[at] - before
            if size <= 0:
                break
        return after

    def places_for_time(self, timestamp_ms: int, start_offset: int) -> list[tuple[int, int]]:
        """Where to look, in order, for the first record of `timestamp_ms` or later at or after `start_offset`.

        (log position, length) each: the first batch that has such a record, and, as long as a batch begins below
        `start_offset` and may have it there only, the one after it.
        """
        found = []
        for run in self.runs_from(start_offset):
            if run.end_offset <= start_offset or run.max_ms < timestamp_ms:
                continue
            columns = run.columns
            for row in range(max(run.row_for_time(timestamp_ms), run.row_for(start_offset)), run.high):
                if columns.max_ms[row] >= timestamp_ms:
                    found.append((columns.position[row], columns.total[row] - run.before(row)))
                    if columns.base[row] >= start_offset:
                        return found
        return found

    def cut_batch(self, start_offset: int) -> tuple[tuple[int, int], int] | None:
        """(log position, length) and largest timestamp of the batch that begins below `start_offset` and reaches
        into it."""
        for run in self.runs_from(start_offset):
            row = run.row_for(start_offset)
            if row == run.high:
                continue
            columns = run.columns
            if columns.base[row] >= start_offset:
                break
            return (columns.position[row], columns.total[row] - run.before(row)), columns.max_ms[row]
        return None

    def max_ms(self, start_offset: int) -> int | None:
        """The largest timestamp of the batches that begin at or after `start_offset`; None if none does."""
        found: list[int] = []
        for run in self.runs_from(start_offset):
            if run.first_offset >= start_offset:
                found.append(run.max_ms)
            elif run.end_offset > start_offset:
                columns, first = run.columns, run.row_for(start_offset)
                if columns.base[first] < start_offset:
                    first += 1
                found += [columns.max_ms[row] for row in range(first, run.high)]
        return max(found, default=None)

    def time_of(self, offset: int) -> int:
        """The time that stands with the batch that holds `offset`, which must be there: its largest timestamp, or when
        it is due."""
        for run in self.runs_from(offset):
            row = run.row_for(offset)
            if row < run.high:
                return run.columns.max_ms[row]
        raise LookupError(offset)

    def size_bytes(self) -> int:
        """Bytes of all batches that are still indexed."""
        return sum(run.bytes for run in self.runs())

    def damage_at(self, offset: int) -> bool:
        return any(low <= offset < high for low, high in self.damaged)


def _first_sound(run: Run, row: int) -> int:
    """The first row from this one on whose batch can be read; `run.high` if there is none."""
    while row < run.high and run.columns.span[row] > MOST_RECORDS:
        row += 1
    return row
