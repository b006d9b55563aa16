"""Which pieces become one, what a list of them says of itself, and how much of it is looked at."""

from __future__ import annotations

import random
from itertools import pairwise
from typing import Any

import pytest

from halfmoon.cluster.engine import merging
from halfmoon.cluster.engine.merging import LOOKED_AT, MOST_BYTES, Run, full_run, row_runs, small_runs, waiting_rows
from halfmoon.cluster.engine.piece_list import PieceList
from halfmoon.cluster.engine.pieces import IN_DATABASE, BrokenLogError, Piece

MIB = 1 << 20
NEVER = 1 << 60


def pieces_of(*segments: tuple[int, list[int]], key: str = "o") -> list[Piece]:
    """Pieces of these sizes, of segments that begin there."""
    found = []
    for segment, sizes in segments:
        at = segment
        for size in sizes:
            found.append(Piece(at, at + size, 0, segment, key))
            at += size
    return found


def become_one(pieces: PieceList, run: Run) -> None:
    pieces.replace(run.old, [Piece(run.start, run.end, 0, run.segment, "g")])


def merged(pieces: PieceList, active: int) -> list[Piece]:
    while (run := full_run(pieces, active)) is not None:
        become_one(pieces, run)
    return list(pieces)


def test_a_sealed_segment_waits_for_its_rows() -> None:
    rows = [Piece(0, 10, 0, 0, "o"), Piece(10, 20, 0, 0), Piece(20, 30, 0, 20, "o")]
    pieces = PieceList(rows)
    assert full_run(pieces, 20) is None
    assert [run.old for run in row_runs(pieces)] == [(rows[1],)]
    pieces.replace([rows[1]], [rows[1]._replace(key="p")])
    assert list(row_runs(pieces)) == []
    run = full_run(pieces, 20)
    assert run is not None
    assert (run.start, run.end, run.segment) == (0, 20, 0)
    assert small_runs(pieces) == []


def test_a_sealed_segment_that_is_large_becomes_runs() -> None:
    pieces = PieceList(pieces_of((0, [3 * MIB // 2] * 134), (NEVER, [10])))
    found = merged(pieces, NEVER)
    assert [piece.size // MIB for piece in found] == [63, 63, 63, 12, 0]
    assert pieces.merged_to == found[-2].end


def test_a_segment_that_is_written_to_is_merged_as_far_as_nothing_can_follow() -> None:
    pieces = PieceList(pieces_of((0, [30 * MIB] * 3)))
    assert [piece.size // MIB for piece in merged(pieces, 0)] == [60, 30]
    pieces.add([Piece(90 * MIB, 100 * MIB, 0, 0, "o")])
    assert [piece.size // MIB for piece in merged(pieces, 0)] == [60, 30, 10]
    assert [piece.size // MIB for piece in merged(pieces, 100 * MIB)] == [60, 40]
    assert pieces.merged_to == 100 * MIB


def test_a_piece_of_more_than_becomes_one_stays() -> None:
    pieces = PieceList(pieces_of((0, [MIB, 65 * MIB, MIB, MIB])))
    assert [piece.size // MIB for piece in merged(pieces, NEVER)] == [1, 65, 2]


def test_rows_that_stay_hold_up_nothing_behind_them() -> None:
    before, behind = pieces_of((0, [MIB] * 2), (2 * MIB, [40 * MIB] * 2))[:2], pieces_of((3 * MIB, [MIB] * 3))
    row = Piece(2 * MIB, 3 * MIB, 0, 0)
    pieces = PieceList([*before, row, *behind])
    assert [piece.size // MIB for piece in merged(pieces, NEVER)] == [1, 1, 1, 3]
    assert pieces.merged_to == 0
    pieces.replace([row], [row._replace(key="o")])
    assert [piece.size // MIB for piece in merged(pieces, NEVER)] == [3, 3]


def test_rows_become_runs_of_pieces_that_follow_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merging, "RUN_ROWS", 3)
    rows = pieces_of((0, [10] * 4), (40, [10] * 3), key=IN_DATABASE)
    rows[5] = rows[5]._replace(key="o")
    pieces = PieceList(rows)
    assert [run.old for run in row_runs(pieces)] == [tuple(rows[:3]), (rows[3],), (rows[4],), (rows[6],)]


def test_runs_that_are_left_out_count_for_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = PieceList(pieces_of((0, [10] * 25), key=IN_DATABASE))
    monkeypatch.setattr(merging, "RUN_ROWS", 10)
    assert [run.start for run in row_runs(rows, {0, 100})] == [200]
    assert waiting_rows(rows, {0}) == (100, 15, 150)
    assert waiting_rows(rows, {100}) == (0, 15, 150)
    assert waiting_rows(rows, {0, 100, 200}) == (None, 0, 0)
    monkeypatch.setattr(merging, "SMALL_COUNT", 3)
    small = PieceList(pieces_of((0, [10] * 3), (30, [10] * 2)))
    assert [run.start for run in small_runs(small, {30})] == [0]
    assert small_runs(small, {0}) == []
    sealed = PieceList(pieces_of((0, [10] * 3), (30, [10] * 2), (50, [10])))
    second = full_run(sealed, 50, {0})
    assert second is not None
    assert second.start == 30
    become_one(sealed, second)
    assert full_run(sealed, 50, {0}) is None
    assert sealed.merged_to == 0, "it is looked at again"
    first = full_run(sealed, 50)
    assert first is not None
    become_one(sealed, first)
    assert full_run(sealed, 50) is None
    assert sealed.merged_to == 50


def test_so_many_rows_become_one_as_a_database_can_delete_in_time() -> None:
    """After the store was away there may be very many, and one may be as large as a batch."""
    many = PieceList(pieces_of((0, [100] * 25_000), key=IN_DATABASE))
    large = PieceList(pieces_of((0, [MIB, 3 * MIB] * 10 + [20 * MIB, MIB]), key=IN_DATABASE))
    for pieces in (many, large):
        assert [piece for run in row_runs(pieces) for piece in run.old] == list(pieces)
    assert {len(run.old) for run in row_runs(many)} == {1_000}
    assert [(run.end - run.start) // MIB for run in row_runs(large)] == [8] * 5 + [20, 1]


def test_rows_are_counted_as_they_come_and_go() -> None:
    dice = random.Random(1)
    pieces = PieceList()
    end = segment = 0
    for _ in range(2_000):
        if dice.random() < 0.05:
            segment = end
        size = dice.randrange(1, 100)
        pieces.add([Piece(end, end + size, 0, segment, dice.choice((IN_DATABASE, "o")))])
        end += size
        if dice.random() < 0.05:
            for run in list(row_runs(pieces)):
                become_one(pieces, run)
        if dice.random() < 0.05:
            (first, *_), at = pieces, dice.choice(list(pieces)).end
            pieces.drop(at if dice.random() < 0.5 else at - 1)
            pieces.drop(first.start)
        rows = {piece.start: piece for piece in pieces if piece.key == IN_DATABASE}
        assert list(pieces.rows.items()) == list(rows.items())
        assert pieces.row_bytes == sum(row.size for row in rows.values())
        waiting = waiting_rows(pieces)
        assert waiting == (next(iter(rows), None), len(rows), pieces.row_bytes)
        assert waiting.are_many == (len(rows) >= merging.ROW_COUNT)
        assert all(one.end == other.start for one, other in pairwise(pieces))
        assert pieces.between(end - 1, end) == list(pieces)[-1:]


def test_pieces_that_end_before_are_dropped_and_no_others() -> None:
    pieces = PieceList(pieces_of((0, [10, 10, 10])))
    for before, starts in ((9, [0, 10, 20]), (10, [10, 20]), (19, [10, 20]), (20, [20]), (40, [])):
        pieces.drop(before)
        assert [piece.start for piece in pieces] == starts


def test_pieces_that_were_dropped_meanwhile_are_not_replaced() -> None:
    pieces = PieceList(pieces_of((0, [10, 10]), (20, [10])))
    old = list(pieces)[:2]
    pieces.drop(20)
    pieces.replace(old, [Piece(0, 20, 0, 0, "g")])
    assert [piece.start for piece in pieces] == [20]
    pieces.drop(30)
    pieces.replace(old, [Piece(0, 20, 0, 0, "g")])
    assert list(pieces) == []


def test_other_pieces_than_those_that_are_there_are_not_replaced() -> None:
    pieces = PieceList(pieces_of((0, [10, 10, 10])))
    before = list(pieces)
    for old in ([before[1]._replace(crc=1)], [*before[1:], Piece(30, 40, 0, 0, "o")], [Piece(5, 20, 0, 0, "o")]):
        with pytest.raises(BrokenLogError, match="are others"):
            pieces.replace(old, [Piece(old[0].start, old[-1].end, 0, 0, "g")])
        assert list(pieces) == before


def test_a_list_becomes_what_the_database_has() -> None:
    """What was added or dropped in one of the two only, since the other was read, is not touched."""
    rows = pieces_of((0, [10] * 6), key=IN_DATABASE)
    one, whole = Piece(20, 40, 0, 0, "g"), Piece(0, 60, 0, 0, "g")
    for here, there, wanted in (
        (rows, rows, None),
        ([*rows[:2], one, *rows[4:]], rows, rows),
        (rows, [*rows[:2], one, *rows[4:]], [*rows[:2], one, *rows[4:]]),
        ([*rows[:2], one, rows[4]], rows, rows[:5]),  # a commit of which nobody here was told yet
        ([*rows[:2], one, *rows[4:]], rows[:5], rows),  # one that came later
        ([*rows[:2], one, *rows[4:]], rows[2:], rows),  # dropped there, and soon here
        ([one, *rows[4:]], rows, rows[2:]),
        (rows, rows[1:5], None),
        (rows, [], None),
        ([], rows, None),
    ):
        pieces = PieceList(here)
        pieces.merged_to = 50
        assert pieces.correct(there) == (wanted is not None)
        assert list(pieces) == (here if wanted is None else wanted)
        if wanted is not None:
            same = PieceList(wanted)
            assert (pieces.rows, pieces.row_bytes, pieces.merged_to) == (same.rows, same.row_bytes, 0)
            assert pieces.between(21, 22) == same.between(21, 22)
    for other in (
        [rows[0], *rows[2:]],
        [whole],
        rows[:2] + rows[3:],
        [piece._replace(end=piece.end + 1) for piece in rows],
    ):
        pieces = PieceList([*rows[:4], rows[4]])
        with pytest.raises(BrokenLogError):
            pieces.correct(other)
        assert list(pieces) == rows[:5]


class Looking(PieceList):
    """Counts the pieces that it hands out."""

    looked_at = 0

    def __iter__(self) -> Any:
        raise AssertionError("all of it is looked at")

    def behind(self, position: int, most: int) -> Any:
        found = super().behind(position, most)
        self.looked_at += len(found)
        return found


def test_what_is_merged_is_not_looked_at_again() -> None:
    segments = [(number << 40, [MOST_BYTES] * 1_000) for number in range(100)]
    pieces = Looking(pieces_of(*segments))
    active = NEVER

    def look() -> int:
        pieces.looked_at = 0
        assert not waiting_rows(pieces).are_many
        assert small_runs(pieces) == []
        assert full_run(pieces, active) is None
        return pieces.looked_at

    first = [look() for _ in range(60)]
    assert max(first) == 2 * LOOKED_AT
    assert first[-1] == 0
    end = pieces.merged_to
    pieces.add([Piece(end + number * MIB, end + (number + 1) * MIB, 0, end) for number in range(3)])
    assert look() == 6
    assert sum(len(run.old) for run in row_runs(pieces)) == 3


def test_a_log_has_few_pieces_however_it_grows() -> None:
    """Of 16 GiB, in commits of some sizes."""
    dice = random.Random(1)
    pieces = PieceList()
    end = segment = number = 0
    while end < 16 << 30:
        number += 1
        if end - segment >= MIB << dice.randrange(4, 11):
            segment = end
        size = dice.choice((3 * MIB // 2, 7 * MIB, MIB // 3))
        pieces.add([Piece(end, end + size, 0, segment, "o")])
        end += size
        if number % 50 == 0:
            for run in small_runs(pieces):
                become_one(pieces, run)
            while (full := full_run(pieces, segment)) is not None:
                become_one(pieces, full)
    assert len(pieces) < 2 * (16 << 30) // MOST_BYTES + len(pieces.segments()) + 200
