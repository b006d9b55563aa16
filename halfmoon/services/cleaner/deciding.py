"""What becomes of the records of a partition that is compacted: each batch's marks, found by walking it backwards."""

from __future__ import annotations

import errno
from array import array
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import compress

from halfmoon.core.record_keys import Keys, read_keys
from halfmoon.core.records.batch_header import CONTROL, TRANSACTIONAL, BatchHeader, parse_header
from halfmoon.core.records.batches import batch_body
from halfmoon.core.transactions.aborted import AbortedBatches
from halfmoon.errors import BrokerError
from halfmoon.services.cleaner.compaction import DEAD, UNDECIDED, LastOfKey
from halfmoon.services.cleaner.reading import Piece, Row, Sources, end_offset
from halfmoon.services.cleaner.tasks import Counts, Work

BLOCK_ROWS = 4096
"""Batches that are looked up at once by a walk backwards."""


class Decided:
    """What becomes of the records of one partition: the marks of all batches."""

    def __init__(self, sources: Sources, work: Work, rows: Sequence[Row], key_bytes: int, counts: Counts) -> None:
        self._sources = sources
        self._aborted = AbortedBatches(work.aborted)
        self._counts = counts
        self._unreadable: set[int] = set()
        """Base offsets."""
        self._missing: set[int] = set()
        """Base offsets of batches that rot had taken when they were first walked over."""
        self._again = False
        dirty = bisect_right(rows, work.compacted_upto, key=end_offset)
        self._clean, self._dirty = rows[:dirty], rows[dirty:]
        self._dirty_from = work.compacted_upto
        self._marks = bytearray()
        """Of the dirty batches, the newest first, but for those of which nothing is left."""
        self._gone = array("q")
        """Base offsets of the latter, which need not be read again, the newest first."""
        self._clean_marks: bytearray | None = None
        """Of the clean batches, the oldest first; None where `_last` still knows all later keys."""
        self._starts: array[int] | None = array("I")
        """Where the records of dirty batches begin in their bodies that are not dead, in the order of the marks; None
        where some of them were undecided."""
        self._last = LastOfKey(key_bytes)
        self._first_walk()
        self._again = True
        while self._marks and max(self._marks) >= UNDECIDED:
            self._further_walk(key_bytes)
        self._at = len(self._marks)
        self._start_at = len(self._starts or ())
        self._clean_at = 0

    def left(self, rows: Iterable[Row]) -> Iterator[Row]:
        """Without the batches that are gone."""
        gone = self._gone
        at = len(gone) - 1
        for row in rows:
            if at >= 0 and gone[at] == row.base:
                at -= 1
            else:
                yield row

    def starts(self, row: Row, marks: bytearray) -> Sequence[int] | None:
        """Where the records that are not dead begin, if that is known: asked for after the marks."""
        if self._starts is None or row.end_offset <= self._dirty_from:
            return None
        live = len(marks) - marks.count(DEAD)
        self._start_at -= live
        return self._starts[self._start_at : self._start_at + live][::-1]

    def check(self, row: Row, piece: Piece | None) -> None:
        """Marks are told apart by their order only. Raises OSError where the batch was there when they were made, and
        is not now, or the other way round."""
        walked = row.end_offset > self._dirty_from or self._clean_marks is not None
        if walked and (piece is None) != (row.base in self._missing):
            raise OSError(errno.EIO, f"the data at log position {row.position} reads differently each time")

    def of(self, row: Row, piece: Piece, header: BatchHeader) -> bytearray | None:
        """The marks of a batch. Asked for once each, in the order of offsets. None: it is to be copied."""
        if self._aborted.hold(header):
            return bytearray()
        if row.base in self._unreadable:
            return None
        count = header.record_count
        if row.end_offset > self._dirty_from:
            self._at -= count
            return self._marks[self._at : self._at + count][::-1]
        if self._clean_marks is not None:
            self._clean_at += count
            return self._clean_marks[self._clean_at - count : self._clean_at]
        keys = self._keys(row, piece)
        return None if keys is None else self._last.marks_of_earlier(keys)

    def _first_walk(self) -> None:
        self._counts.walks += 1
        for row, piece in self._backwards(self._dirty):
            keys = self._keys(row, piece)
            if keys is not None:
                marks = self._last.mark(keys)[::-1]
                if not any(marks) and not parse_header(piece.payload).attributes & TRANSACTIONAL:
                    self._gone.append(row.base)
                    self._counts.records += len(marks)
                    continue
                self._marks += marks
                if self._starts is not None:
                    self._starts.extend(compress(reversed(keys.starts), marks))
                if self._last.is_full:
                    self._starts = None
        if self._last.is_full:
            self._clean_marks = bytearray()
            for row, piece in self._forwards(self._clean):
                keys = self._keys(row, piece)
                if keys is not None:
                    self._clean_marks += self._last.marks_of_earlier(keys)
            self._last = LastOfKey(0)

    def _further_walk(self, key_bytes: int) -> None:
        self._counts.walks += 1
        last = LastOfKey(key_bytes)
        at = gone = 0
        for row, piece in self._backwards(self._dirty):
            if gone < len(self._gone) and self._gone[gone] == row.base:
                gone += 1
                continue
            keys = self._keys(row, piece)
            if keys is not None:
                marks = self._marks[at : at + len(keys.keys)][::-1]
                last.mark_again(keys, marks)
                self._marks[at : at + len(keys.keys)] = marks[::-1]
                at += len(keys.keys)
        at = 0
        assert self._clean_marks is not None
        for row, piece in self._forwards(self._clean):
            keys = self._keys(row, piece)
            if keys is not None:
                for mark in last.marks_of_earlier(keys):
                    if not mark:
                        self._clean_marks[at] = mark
                    at += 1

    def _backwards(self, rows: Sequence[Row]) -> Iterator[tuple[Row, Piece]]:
        blocks = (rows[max(0, high - BLOCK_ROWS) : high] for high in range(len(rows), 0, -BLOCK_ROWS))
        stretches = (stretch for block in blocks for stretch in reversed(list(self._sources.stretches(block))))
        return self._whole(self._sources.read(stretches, backwards=True))

    def _forwards(self, rows: Sequence[Row]) -> Iterator[tuple[Row, Piece]]:
        return self._whole(self._sources.read(self._sources.stretches(rows)))

    def _whole(self, found: Iterator[tuple[Row, Piece | None]]) -> Iterator[tuple[Row, Piece]]:
        for row, piece in found:
            if self._again:
                self.check(row, piece)
            elif piece is None:
                self._missing.add(row.base)
            if piece is not None:
                yield row, piece

    def _keys(self, row: Row, piece: Piece) -> Keys | None:
        """None of a batch that is no matter of keys."""
        header = parse_header(piece.payload)
        if header.attributes & CONTROL or self._aborted.hold(header):
            return None
        try:
            return read_keys(bytes(batch_body(piece.payload)), header.record_count)
        except BrokerError:
            self._unreadable.add(row.base)
            return None
