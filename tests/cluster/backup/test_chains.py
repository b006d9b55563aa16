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


def shared(found: Found) -> Found:
    """In an object that has pieces of other shards, too."""
    return found._replace(shared=True)


def spans(found: Chain) -> list[tuple[int, int]]:
    return [(each.start, each.end) for each in found.pieces]


def test_pieces_follow_each_other() -> None:
    found = chain([stored(1, 5, 9, 0), stored(1, 0, 5, 0), stored(2, 9, 12, 9)])
    assert spans(found) == [(0, 5), (5, 9), (9, 12)]
    assert (found.start, found.end, list(found.left_out)) == (0, 12, [])
    assert chain([]) == Chain([], [], [])


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
    assert list(found.left_out) == [(30, 50)]
    assert chain([merged(1, 30, 50, 0)]) == Chain([], [(30, 50)], [])


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


OLD = [shared(merged(1, at, at + 10, at)) for at in range(0, 100, 10)]
"""Retention has dropped it; other shards need these objects still."""


def test_what_other_shards_keep_of_what_retention_has_dropped_is_not_the_log() -> None:
    live = [merged(2, 200, 210, 200), shared(merged(2, 210, 215, 200)), stored(2, 215, 216, 200)]
    found = chain([*OLD, *live])
    assert spans(found) == [(200, 210), (210, 215), (215, 216)]
    assert (list(found.left_out), list(found.expired)) == ([], [(0, 100)])
    one_by_one = chain([*OLD[::2], *live])
    assert (one_by_one.start, one_by_one.end, list(one_by_one.left_out)) == (200, 216, [])
    assert len(one_by_one.expired) == 5


def test_what_is_kept_of_the_segment_that_was_dropped_last_is_not_the_log() -> None:
    """It ends where the log begins, and lacks the head of its segment."""
    found = chain([*OLD, shared(merged(1, 150, 200, 110)), merged(2, 200, 210, 200)])
    assert spans(found) == [(200, 210)]
    assert (list(found.left_out), list(found.expired)) == ([], [(0, 100), (150, 200)])


@pytest.mark.parametrize("leftover", [stored(2, 150, 160, 150), merged(2, 150, 160, 150)])
def test_what_nobody_has_ever_needed_makes_nothing_live_that_was_dropped(leftover: Found) -> None:
    """A node had stored it, and had lost the shard: it stays in the store for a day. It may be part of the log, too,
    whose other objects are missing: so it is named."""
    found = chain([*OLD, leftover, merged(3, 200, 210, 200)])
    assert (spans(found), list(found.expired)) == ([(200, 210)], [(0, 100)])
    assert list(found.left_out) == [(150, 160)]


def test_where_an_object_is_missing_the_largest_stretch_that_has_not_expired_is_the_log() -> None:
    own = [merged(2, at, at + 10, at) for at in range(200, 260, 10)]
    for missing, kept, others in (
        (210, (220, 260), [(200, 210)]), (220, (230, 260), [(200, 220)]), (240, (200, 240), [(250, 260)]),
        (250, (200, 250), []),
    ):  # fmt: skip
        found = chain([*OLD, *(each for each in own if each.piece.start != missing)])
        assert (found.start, found.end) == kept
        assert (list(found.expired), list(found.left_out)) == ([(0, 100)], others)
    in_a_segment = chain([*OLD, merged(2, 200, 220, 200), merged(2, 225, 300, 200), merged(2, 300, 301, 300)])
    assert (spans(in_a_segment), list(in_a_segment.left_out)) == ([(300, 301)], [(200, 220), (225, 300)])


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
