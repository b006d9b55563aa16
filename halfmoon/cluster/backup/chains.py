"""Which pieces are a shard's log, where only the objects say so: pure decisions.

What was brought together (`certain`) had been committed. What a shard of objects has stored may have been fenced off:
who took the shard went on from the end that was committed, so a piece of an earlier epoch that reaches beyond the
beginning of a later one was not; nor one that goes on with a segment that another node had ended. Whether the very last
piece was acknowledged nobody can tell: it is taken.

A database that was brought back to an earlier moment goes on in a later *generation* of epochs. What had been written
after that moment is in the store for a while, and was discarded, brought together or not: no piece of an earlier
generation reaches beyond a segment that was begun in a later one.

A log has no holes and begins with a segment. Where there is a hole, what is left are several stretches: the largest is
the log. Before it may be what retention had dropped already; behind it what cannot be read without what is missing.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate, pairwise
from typing import NamedTuple

from halfmoon.cluster.backup.ports import EPOCHS
from halfmoon.cluster.engine.pieces import Piece


class Found(NamedTuple):
    epoch: int
    piece: Piece
    certain: bool

    @property
    def generation(self) -> int:
        return self.epoch // EPOCHS

    @property
    def rank(self) -> tuple[int, bool, int]:
        """The highest is taken of pieces that begin together."""
        return self.generation, self.certain, self.piece.end


class Chain(NamedTuple):
    pieces: Sequence[Piece]
    """They follow each other."""
    left_out: Sequence[tuple[int, int]]
    """Positions [from, to) of other stretches."""

    @property
    def start(self) -> int:
        return self.pieces[0].start if self.pieces else 0

    @property
    def end(self) -> int:
        return self.pieces[-1].end if self.pieces else 0


def chain(found: Iterable[Found]) -> Chain:
    """Of one shard."""
    best_at: dict[int, Found] = {}
    for each in _true(_not_discarded(list(found))):
        known = best_at.get(each.piece.start)
        if known is None or each.rank > known.rank:
            best_at[each.piece.start] = each
    stretches: list[list[Piece]] = []
    covered = -1
    for start in sorted(best_at):
        piece = best_at[start].piece
        if start < covered:
            continue
        if start == covered and piece.segment in (start, stretches[-1][-1].segment):
            stretches[-1].append(piece)
        else:
            stretches.append([piece])
        covered = piece.end
    whole = [each for each in map(_from_a_segment, stretches) if each]
    if not whole:
        return Chain((), [(each[0].start, each[-1].end) for each in stretches])
    best = max(whole, key=lambda each: (each[-1].end - each[0].start, each[-1].end))
    others = [(each[0].start, each[-1].end) for each in stretches if each[-1] is not best[-1]]
    assert all(before.end == after.start for before, after in pairwise(best))
    return Chain(best, others)


def _not_discarded(found: list[Found]) -> list[Found]:
    """Without what no database has known since one was brought back."""
    kept: list[Found] = []
    limit: int | None = None
    """Where the first segment begins that is of a later generation."""
    for generation in sorted({each.generation for each in found}, reverse=True):
        own = [each for each in found if each.generation == generation]
        kept += [each for each in own if limit is None or each.piece.end <= limit]
        # What was brought together may be of a segment of before, unless a piece of before reaches over its beginning.
        is_inside = _inside([each.piece for each in found if each.generation < generation])
        begun = [each.piece.segment for each in own if not each.certain or is_inside(each.piece.segment)]
        limit = min(begun if limit is None else [limit, *begun], default=limit)
    return kept


def _inside(pieces: list[Piece]) -> Callable[[int], bool]:
    """Whether a position is in one of them, and not at its beginning or end."""
    pieces.sort()
    starts = [piece.start for piece in pieces]
    ends = list(accumulate((piece.end for piece in pieces), max, initial=0))
    return lambda position: ends[bisect_left(starts, position)] > position


def _true(found: list[Found]) -> list[Found]:
    """Without what was fenced off."""
    true = [each for each in found if each.certain]
    stored = [each for each in found if not each.certain]
    limit = max((each.piece.end for each in stored), default=0)
    for epoch in sorted({each.epoch for each in stored}, reverse=True):
        kept = [each for each in stored if each.epoch == epoch and each.piece.end <= limit]
        true += kept
        limit = min([limit, *(each.piece.start for each in kept)])
    return true


def _from_a_segment(stretch: list[Piece]) -> list[Piece]:
    """From the first piece on that begins a segment."""
    for at, piece in enumerate(stretch):
        if piece.segment == piece.start:
            return stretch[at:]
    return []
