"""Which of the pieces that objects list are a shard's log."""

from __future__ import annotations

import random

import pytest

from halfmoon.cluster.backup.chains import Chain, Found, chain
from halfmoon.cluster.backup.ports import EPOCHS
from halfmoon.cluster.engine.pieces import Piece


def piece(start: int, end: int, segment: int, key: str = "k") -> Piece:
    return Piece(start, end, 0, segment, key)


def stored(epoch: int, start: int, end: int, segment: int, key: str = "k") -> Found:
    return Found(epoch, piece(start, end, segment, key), certain=False)


def merged(epoch: int, start: int, end: int, segment: int, key: str = "m") -> Found:
    return Found(epoch, piece(start, end, segment, key), certain=True)


def spans(found: Chain) -> list[tuple[int, int]]:
    return [(each.start, each.end) for each in found.pieces]


def test_pieces_follow_each_other() -> None:
    found = chain([stored(1, 5, 9, 0), stored(1, 0, 5, 0), stored(2, 9, 12, 9)])
    assert spans(found) == [(0, 5), (5, 9), (9, 12)]
    assert (found.start, found.end, list(found.left_out)) == (0, 12, [])
    assert chain([]) == ((), [])


def test_what_was_fenced_off_is_not_part_of_it() -> None:
    found = chain([
        stored(1, 0, 5, 0), stored(1, 5, 9, 0, "lost"), stored(1, 9, 20, 0, "lost"),
        stored(2, 5, 7, 5), stored(2, 7, 8, 5, "late"), stored(3, 7, 30, 7),
    ])  # fmt: skip
    assert [(each.start, each.end, each.key) for each in found.pieces] == [(0, 5, "k"), (5, 7, "k"), (7, 30, "k")]
    assert not found.left_out


def test_what_was_brought_together_stands_for_its_parts() -> None:
    parts = [stored(1, at, at + 10, 0) for at in range(0, 100, 10)]
    found = chain([*parts, merged(4, 0, 60, 0), merged(7, 20, 40, 0), stored(5, 100, 110, 100)])
    assert spans(found) == [(0, 60), (60, 70), (70, 80), (80, 90), (90, 100), (100, 110)]
    longer = chain([merged(4, 0, 60, 0), stored(1, 0, 90, 0, "fenced"), merged(4, 60, 70, 60)])
    assert spans(longer) == [(0, 60), (60, 70)]


def test_a_log_begins_with_a_segment() -> None:
    found = chain([merged(1, 30, 50, 0), merged(1, 50, 60, 50), merged(1, 60, 70, 60)])
    assert spans(found) == [(50, 60), (60, 70)]
    assert chain([merged(1, 30, 50, 0)]) == ((), [(30, 50)])


LATER = 7 + EPOCHS
"""An epoch after the database was brought back."""


def test_what_was_written_after_a_moment_to_which_the_database_was_brought_back_is_discarded() -> None:
    found = chain([
        stored(1, 0, 200, 0), merged(7, 200, 260, 200), stored(LATER, 200, 210, 200), stored(LATER, 210, 300, 200),
    ])  # fmt: skip
    assert (spans(found), list(found.left_out)) == ([(0, 200), (200, 210), (210, 300)], [])
    across = chain([
        merged(7, 0, 150, 0), merged(7, 150, 260, 0), merged(7, 260, 400, 260), merged(LATER, 150, 200, 0),
        merged(LATER, 200, 210, 200), merged(LATER, 210, 300, 200),
    ])  # fmt: skip
    assert spans(across) == [(0, 150), (150, 200), (200, 210), (210, 300)]
    at_a_segment = chain([merged(7, 0, 200, 0), merged(7, 200, 260, 200), merged(LATER, 200, 210, 200)])
    assert spans(at_a_segment) == [(0, 200), (200, 210)]
    twice = chain([
        merged(7, 0, 100, 0), merged(7, 100, 300, 100), stored(LATER, 200, 400, 200),
        stored(LATER + EPOCHS, 100, 110, 100),
    ])  # fmt: skip
    assert spans(twice) == [(0, 100), (100, 110)]


def test_what_was_brought_together_later_leaves_what_was_there_before() -> None:
    found = chain(
        [merged(7, 0, 100, 0), merged(7, 100, 200, 100), merged(LATER, 200, 300, 100), stored(LATER, 300, 310, 300)]
    )
    assert spans(found) == [(0, 100), (100, 200), (200, 300), (300, 310)]


@pytest.mark.parametrize(("hole", "kept"), [((10, 20), (20, 100)), ((80, 90), (0, 80))])
def test_of_what_is_left_beside_a_hole_the_larger_part_is_the_log(hole: tuple[int, int], kept: tuple[int, int]) -> None:
    all_of_it = [merged(1, at, at + 10, at) for at in range(0, 100, 10)]
    found = chain([each for each in all_of_it if each.piece.start != hole[0]])
    assert (found.start, found.end) == kept
    others = {(0, 10), (20, 100)} if hole == (10, 20) else {(0, 80), (90, 100)}
    assert set(found.left_out) == others - {kept}


@pytest.mark.parametrize("seed", range(200))
def test_any_history_is_found_again(seed: int) -> None:
    """Nodes write, are fenced off with something stored, and bring pieces together; some of the old are gone."""
    dice = random.Random(seed)
    log: list[Piece] = []
    found: list[Found] = []
    end, epoch = 0, 0
    for _ in range(dice.randint(1, 6)):
        epoch += dice.randint(1, 3)
        segment = end
        for _ in range(dice.randint(1, 8)):  # each writes that it has begun
            size = dice.randint(1, 9)
            log.append(piece(end, end + size, segment))
            found.append(Found(epoch, log[-1], certain=False))
            end += size
        at = end
        for _ in range(dice.randint(0, 2)):  # what it had stored when another one took the shard
            size = dice.randint(1, 30)
            found.append(stored(epoch, at, at + size, segment, "fenced"))
            at += size
    if log:
        # The last that was stored cannot be told from one that was committed.
        found = [each for each in found if each.piece.key == "k" or each.epoch < epoch]
    for _ in range(dice.randint(0, 4)):
        if len(log) < 2:
            break
        low = dice.randrange(len(log) - 1)
        high = next((at for at in range(low, len(log)) if log[at].segment != log[low].segment), len(log))
        one = Found(epoch, piece(log[low].start, log[high - 1].end, log[low].segment, "m"), certain=True)
        found.append(one)
        if dice.random() < 0.5:
            inside = {each.start for each in log[low:high]}
            found = [each for each in found if each.piece.key != "k" or each.piece.start not in inside]
    dice.shuffle(found)
    if not any(each.piece.key != "fenced" for each in found):
        return
    got = chain(found)
    assert (got.start, got.end) == (0, end)
    assert not any(each.key == "fenced" for each in got.pieces)
