"""The pieces of one shard's log, as its owner knows them."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence

from halfmoon.cluster.engine.pieces import Piece


class PieceList:
    """In order, without holes. The loop changes it; threads read it. They may find what was there a moment before: what
    follows is appended, and everything else is one assignment."""

    def __init__(self, pieces: Iterable[Piece] = ()) -> None:
        self._pieces: tuple[list[int], list[Piece]] = ([], [])
        """Where each begins, of no more than there are; and themselves."""
        self._set(list(pieces))

    def _set(self, pieces: list[Piece]) -> None:
        self._pieces = [piece.start for piece in pieces], pieces

    def __iter__(self) -> Iterator[Piece]:
        return iter(self._pieces[1])

    def __len__(self) -> int:
        return len(self._pieces[1])

    def add(self, pieces: Sequence[Piece]) -> None:
        """They follow the last."""
        starts, before = self._pieces
        before += pieces
        starts += [piece.start for piece in pieces]

    def replace(self, old: Sequence[Piece], new: Sequence[Piece]) -> None:
        """`old` follow each other."""
        starts, pieces = self._pieces
        low = bisect_left(starts, old[0].start)
        assert pieces[low : low + len(old)] == list(old)
        self._set([*pieces[:low], *new, *pieces[low + len(old) :]])

    def drop(self, before: int) -> None:
        """Those that end at or before this position."""
        self._set([piece for piece in self if piece.end > before])

    def between(self, start: int, end: int) -> Sequence[Piece]:
        """Those that have a part of these positions."""
        starts, pieces = self._pieces
        return pieces[max(0, bisect_right(starts, start) - 1) : bisect_left(starts, end)]

    def segments(self) -> list[tuple[int, int]]:
        """[start, end) of each segment, in order; the last one ends where its last piece does."""
        found: list[tuple[int, int]] = []
        for piece in self:
            if found and found[-1][0] == piece.segment:
                found[-1] = piece.segment, piece.end
            else:
                found.append((piece.segment, piece.end))
        return found
