"""Which pieces of a log are to become one, so that a takeover finds few of them, and the database keeps few.

Three steps, each for pieces that follow each other within one segment:

    rows      → an object     once there are ROW_BYTES or ROW_COUNT of them, or the oldest is ROW_AGE_S old
    SMALL     → one of many   once a shard has SMALL_COUNT small ones
    a segment → one of its own, once it is sealed and all of it is in objects

What becomes of rows and of small pieces shares an object with other shards. A sealed segment is an object for itself,
so that it goes with its object when it expires.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from typing import NamedTuple

from halfmoon.cluster.engine.pieces import IN_DATABASE, Piece

ROW_BYTES = 4 << 20
ROW_COUNT = 500
SMALL_BYTES = 1 << 20
SMALL_COUNT = 64
MOST_BYTES = 64 << 20
"""Of what becomes one."""


class Run(NamedTuple):
    """Pieces that become one."""

    old: tuple[Piece, ...]

    @property
    def start(self) -> int:
        return self.old[0].start

    @property
    def end(self) -> int:
        return self.old[-1].end

    @property
    def segment(self) -> int:
        return self.old[0].segment


def rows_of(pieces: Iterable[Piece]) -> list[Piece]:
    return [piece for piece in pieces if piece.key == IN_DATABASE]


def are_many(rows: Sequence[Piece]) -> bool:
    return len(rows) >= ROW_COUNT or sum(row.size for row in rows) >= ROW_BYTES


def row_runs(pieces: Iterable[Piece]) -> list[Run]:
    """All rows there are."""
    return _runs(pieces, lambda piece: piece.key == IN_DATABASE)


def small_runs(pieces: Sequence[Piece]) -> list[Run]:
    """Small pieces in objects, where there are enough of them; none else."""
    found = [run for run in _runs(pieces, _is_small) if len(run.old) > 1]
    return found if sum(len(run.old) for run in found) >= SMALL_COUNT else []


def sealed_run(pieces: Sequence[Piece], active: int) -> Run | None:
    """The oldest segment before the one that begins at `active` that is not one piece yet, where all of it is in
    objects."""
    for segment, group in groupby(pieces, lambda piece: piece.segment):
        of_it = tuple(group)
        in_objects = not any(piece.key == IN_DATABASE for piece in of_it)
        if segment < active and len(of_it) > 1 and in_objects and sum(piece.size for piece in of_it) <= MOST_BYTES:
            return Run(of_it)
    return None


def _is_small(piece: Piece) -> bool:
    return piece.key != IN_DATABASE and piece.size < SMALL_BYTES


def _runs(pieces: Iterable[Piece], wanted: Callable[[Piece], bool]) -> list[Run]:
    found: list[Run] = []
    run: list[Piece] = []
    size = 0
    for piece in pieces:
        takes = wanted(piece)
        if run and (not takes or piece.segment != run[0].segment or size + piece.size > MOST_BYTES):
            found.append(Run(tuple(run)))
            run, size = [], 0
        if takes:
            run.append(piece)
            size += piece.size
    if run:
        found.append(Run(tuple(run)))
    return found
