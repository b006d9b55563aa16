"""Which pieces are a shard's log, where only the objects say so: pure decisions.

What was brought together (`certain`) had been committed. What a shard of objects has stored may have been fenced off:
who took the shard went on from the end that was committed, so a piece of an earlier epoch that reaches beyond the
beginning of a later one was not; nor one that goes on with a segment that another node had ended. Whether the very last
piece was acknowledged nobody can tell: it is taken.

A database that was brought back to an earlier moment goes on in a later *generation* of epochs. What had been written
after that moment is in the store for a while, and was discarded, brought together or not: no piece of an earlier
generation reaches beyond a segment that was begun in a later one.

A log has no holes and begins with a segment. Where there is a hole, what is left are several stretches, for one of two
reasons:

- Retention has dropped whole segments from the beginning. An object that other shards need stays for them, and lists
  what this shard had there. So what is in objects of several shards only, and before a stretch that begins with a
  segment, has *expired*, however large it is.
- An object is missing. Before the hole are objects of this shard alone then, one after the other: full ones are merged
  for each shard, and such an object is deleted soon after it has expired, the oldest first. The largest stretch is the
  log: behind it is what cannot be read without what is missing.

A single object of this shard says neither: a node that died may have stored it and not committed it, and such a
leftover is deleted a day later. What is before the next stretch is not the log then, but it is named as left out.
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
    shared: bool = False
    """The object has pieces of other shards, too: it may be there for these alone."""

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
    """Positions [from, to) of other stretches, …"""
    expired: Sequence[tuple[int, int]] = ()
    """… and of those that retention had dropped."""

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
    stretches: list[list[Found]] = []
    covered = -1
    for start in sorted(best_at):
        piece = best_at[start].piece
        if start < covered:
            continue
        if start == covered and piece.segment in (start, stretches[-1][-1].piece.segment):
            stretches[-1].append(best_at[start])
        else:
            stretches.append([best_at[start]])
        covered = piece.end
    parts = [part for each in stretches for part in _cut_at_a_segment(each)]
    first = _first_not_expired(parts)
    best = max(filter(_begins_a_segment, parts[first:]), key=_size, default=[])
    pieces = [each.piece for each in best]
    assert all(before.end == after.start for before, after in pairwise(pieces))
    expired = [part for part in parts[:first] if all(each.shared for each in part)]
    left_out = [part for part in parts if part is not best and part not in expired]
    return Chain(pieces, [_span(part) for part in left_out], [_span(part) for part in expired])


def _first_not_expired(parts: list[list[Found]]) -> int:
    """Of stretches that are cut at a segment, in the order of their positions."""
    first, own = 0, False
    for at, part in enumerate(parts):
        if not own and _begins_a_segment(part):
            first = at
        own = own or _is_own(part)
    return first


def _is_own(part: list[Found]) -> bool:
    """Whether objects are there for this shard alone. A single one may be a leftover that nobody has ever needed."""
    return any(not each.shared and not following.shared for each, following in pairwise(part))


def _begins_a_segment(part: list[Found]) -> bool:
    return part[0].piece.segment == part[0].piece.start


def _size(part: list[Found]) -> tuple[int, int]:
    """Of two that are as large the later one is larger."""
    start, end = _span(part)
    return end - start, end


def _span(part: list[Found]) -> tuple[int, int]:
    return part[0].piece.start, part[-1].piece.end


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


def _cut_at_a_segment(stretch: list[Found]) -> list[list[Found]]:
    """What is before the first piece that begins a segment, if there is any, and the rest, if there is any."""
    at = next((at for at, each in enumerate(stretch) if each.piece.segment == each.piece.start), len(stretch))
    return [part for part in (stretch[:at], stretch[at:]) if part]
