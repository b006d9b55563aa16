"""Which pieces of a log are to become one, so that a takeover finds few of them, and the database keeps few.

Three kinds of runs, each of pieces that follow each other within one segment:

    rows   → an object     once there are ROW_BYTES or ROW_COUNT of them, or the oldest is old
    small  → one of many   once a shard has SMALL_COUNT small ones
    full   → one of its own, once all of it is in objects and no piece can follow: the next one would make it larger
             than MOST_BYTES, or the segment is sealed

What becomes of rows and of small pieces shares an object with other shards. A full run is an object for itself, so that
it goes with its object when it expires.

So any two pieces that follow each other in a segment have more than MOST_BYTES together, but for the last ones of the
log. What is merged for good is not looked at again (PieceList.merged_to).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from halfmoon.cluster.engine import objects
from halfmoon.cluster.engine.piece_list import PieceList
from halfmoon.cluster.engine.pieces import IN_DATABASE, Piece

ROW_BYTES = 4 << 20
ROW_COUNT = 500
SMALL_BYTES = 1 << 20
SMALL_COUNT = 64
MOST_BYTES = objects.MOST_BYTES
"""Of what becomes one, …"""
MOST_PIECES: Final = 10_000
"""… and so many pieces."""
RUN_ROW_BYTES: Final = 8 << 20
"""Of rows that become one, …"""
RUN_ROWS: Final = 1_000
"""… and so many. Each is deleted, with all its pages, in one statement, which has its time."""
LOOKED_AT: Final = 2_000
"""Pieces in objects that are looked at in one go: about 10 ms, while none of them is merged for good."""


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


class Waiting(NamedTuple):
    """Rows that may become objects."""

    first: int | None
    """Where the oldest begins."""
    rows: int
    size: int

    @property
    def are_many(self) -> bool:
        return self.rows >= ROW_COUNT or self.size >= ROW_BYTES


def waiting_rows(pieces: PieceList, left_out: Collection[int] = ()) -> Waiting:
    """All rows there are, but for runs that begin at one of `left_out`."""
    if not left_out:
        return Waiting(next(iter(pieces.rows), None), len(pieces.rows), pieces.row_bytes)
    rows = [row for run in row_runs(pieces, left_out) for row in run.old]
    return Waiting(rows[0].start if rows else None, len(rows), sum(row.size for row in rows))


def row_runs(pieces: PieceList, left_out: Collection[int] = ()) -> Iterator[Run]:
    """As of `waiting_rows`."""
    runs = _runs(pieces.rows.values(), RUN_ROW_BYTES, RUN_ROWS)
    return (run for run in runs if run.start not in left_out)


def small_runs(pieces: PieceList, left_out: Collection[int] = ()) -> list[Run]:
    """Small pieces in objects, where there are enough of them; none else."""
    looked_at = pieces.behind(pieces.merged_to, LOOKED_AT)
    runs = _runs(filter(_is_small, looked_at), MOST_BYTES, MOST_PIECES)
    found = [run for run in runs if len(run.old) > 1 and run.start not in left_out]
    return found if sum(len(run.old) for run in found) >= SMALL_COUNT else []


def full_run(pieces: PieceList, active: int, left_out: Collection[int] = ()) -> Run | None:
    """The oldest that is not left out, of a log that is written to in the segment that begins at `active`."""
    looked_at = pieces.behind(pieces.merged_to, LOOKED_AT)
    low, for_good = 0, True
    while low < len(looked_at):
        high, is_full = _reach(looked_at, low, active)
        is_run = is_full and high - low > 1
        if is_run and looked_at[low].start not in left_out:
            return Run(tuple(looked_at[low:high]))
        for_good = for_good and is_full and not is_run
        if for_good:
            pieces.merged_to = looked_at[high - 1].end
        low = high
    return None


def _reach(pieces: Sequence[Piece], low: int, active: int) -> tuple[int, bool]:
    """Up to where those from this one on may become one; whether none can follow."""
    first = pieces[low]
    size = 0
    for at in range(low, len(pieces)):
        piece = pieces[at]
        if piece.segment != first.segment:
            return at, True
        if piece.key == IN_DATABASE:
            return max(at, low + 1), False
        size += piece.size
        if size > MOST_BYTES:
            return max(at, low + 1), True
    return len(pieces), first.segment < active and len(pieces) < LOOKED_AT


def _is_small(piece: Piece) -> bool:
    return piece.key != IN_DATABASE and piece.size < SMALL_BYTES


def _runs(pieces: Iterable[Piece], most_bytes: int, most_pieces: int) -> Iterator[Run]:
    run: list[Piece] = []
    size = 0
    for piece in pieces:
        follows = run and piece.start == run[-1].end and piece.segment == run[-1].segment
        if run and (not follows or size + piece.size > most_bytes or len(run) == most_pieces):
            yield Run(tuple(run))
            run, size = [], 0
        run.append(piece)
        size += piece.size
    if run:
        yield Run(tuple(run))
