"""The pieces of one shard's log, as its owner knows them."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise

from halfmoon.cluster.engine.pieces import IN_DATABASE, BrokenLogError, Piece


class PieceList:
    """In order, without holes. The loop changes it; threads read it. They may find what was there a moment before: what
    follows is appended, and everything else is one assignment. The attributes are for the loop alone."""

    def __init__(self, pieces: Iterable[Piece] = ()) -> None:
        self._pieces: tuple[list[int], list[Piece]] = ([], [])
        """Where each begins, of no more than there are; and themselves."""
        self.rows: dict[int, Piece] = {}
        """Those in the database, by where they begin, in order."""
        self.row_bytes = 0
        self.merged_to = 0
        """What ends there or before is merged for good (merging.py)."""
        self.add(list(pieces))

    def __iter__(self) -> Iterator[Piece]:
        return iter(self._pieces[1])

    def __len__(self) -> int:
        return len(self._pieces[1])

    def add(self, pieces: Sequence[Piece]) -> None:
        """They follow the last."""
        starts, before = self._pieces
        before += pieces
        starts += [piece.start for piece in pieces]
        for piece in pieces:
            if piece.key == IN_DATABASE:
                self.rows[piece.start] = piece
                self.row_bytes += piece.size

    def replace(self, old: Sequence[Piece], new: Sequence[Piece]) -> None:
        """`old` follow each other; `new` are in objects. Where they were dropped meanwhile, nothing changes. Raises
        BrokenLogError where others stand there."""
        starts, pieces = self._pieces
        if not starts or old[-1].end <= starts[0]:
            return
        low = bisect_left(starts, old[0].start)
        high = low + len(old)
        if pieces[low:high] != list(old):
            raise BrokenLogError(f"the pieces at {old[0].start} to {old[-1].end} are others than those replaced")
        self._pieces = (
            [*starts[:low], *(piece.start for piece in new), *starts[high:]],
            [*pieces[:low], *new, *pieces[high:]],
        )
        self._forget_rows(old)

    def correct(self, found: Sequence[Piece]) -> bool:
        """`found`: all that the database had a moment ago. Where that is something else, the list becomes so; what was
        added or dropped meanwhile, there or here, stays. Whether anything was something else. Raises BrokenLogError
        where that cannot be a part of this log."""
        starts, pieces = self._pieces
        if not pieces or not found:
            return False
        start, end = max(pieces[0].start, found[0].start), min(pieces[-1].end, found[-1].end)
        low, high = bisect_left(starts, start), bisect_left(starts, end)
        ours, theirs = pieces[low:high], [piece for piece in found if start <= piece.start < end]
        for part in (ours, theirs):
            if not part or (part[0].start, part[-1].end) != (start, end):
                raise BrokenLogError(f"no piece of one of the two lists begins at {start}, or ends at {end}")
        if any(one.end != other.start for one, other in pairwise(theirs)):
            raise BrokenLogError(f"the pieces from {start} to {end} do not follow each other")
        if ours == theirs:
            return False
        pieces = [*pieces[:low], *theirs, *pieces[high:]]
        self._pieces = [piece.start for piece in pieces], pieces
        self.rows = {piece.start: piece for piece in pieces if piece.key == IN_DATABASE}
        self.row_bytes = sum(row.size for row in self.rows.values())
        self.merged_to = 0
        return True

    def drop(self, before: int) -> None:
        """Those that end at or before this position."""
        starts, pieces = self._pieces
        low = bisect_right(starts, before)
        if low and pieces[low - 1].end > before:
            low -= 1
        self._pieces = starts[low:], pieces[low:]
        self._forget_rows(pieces[:low])

    def _forget_rows(self, pieces: Sequence[Piece]) -> None:
        for piece in pieces:
            if self.rows.pop(piece.start, None) is not None:
                self.row_bytes -= piece.size

    def between(self, start: int, end: int) -> Sequence[Piece]:
        """Those that have a part of these positions."""
        starts, pieces = self._pieces
        return pieces[max(0, bisect_right(starts, start) - 1) : bisect_left(starts, end)]

    def behind(self, position: int, most: int) -> Sequence[Piece]:
        """The first that begin there or behind, so many at most."""
        starts, pieces = self._pieces
        low = bisect_left(starts, position)
        return pieces[low : low + most]

    def segments(self) -> list[tuple[int, int]]:
        """[start, end) of each segment, in order; the last one ends where its last piece does."""
        found: list[tuple[int, int]] = []
        for piece in self:
            if found and found[-1][0] == piece.segment:
                found[-1] = piece.segment, piece.end
            else:
                found.append((piece.segment, piece.end))
        return found
