"""Scans tell a torn tail from rot, and nothing damaged from a frame."""

from __future__ import annotations

import pytest

from halfmoon.core.storage.commitlog import CommitLog
from halfmoon.core.storage.frame import Kind
from halfmoon.core.storage.scan import Scan
from halfmoon.testing.faulty_files import FaultyFileSystem
from tests.core.log_bench import SEGMENT, append_batch, append_group, flush, open_log, rot


@pytest.fixture
def log(fs: FaultyFileSystem) -> CommitLog:
    return open_log(fs)


def scanned(
    log: CommitLog, position: int = 0, generation: int = 0, flushed: int = 0
) -> tuple[Scan, list[int], list[int]]:
    """The scan at its end, the base offsets of whole batches, and those of batches whose payload is lost."""
    scan = Scan(log.segments, position, generation, flushed)
    whole, lost = [], []
    for frame, payload in scan.frames():
        if frame.kind == Kind.BATCH:
            (whole if payload is not None else lost).append(frame.base_offset)
    return scan, whole, lost


def test_an_empty_log_is_scanned_in_no_time(log: CommitLog) -> None:
    scan, whole, _ = scanned(log)
    assert (scan.position, whole, scan.damaged, scan.torn_bytes) == (0, [], [], 0)


def test_whole_frames_come_in_order_over_segments(log: CommitLog) -> None:
    for offset in range(40):
        append_batch(log, offset, b"x" * 5_000)
        log.write()
    assert len(log.segments) > 3
    scan, whole, _ = scanned(log)
    assert whole == list(range(40))
    assert (scan.position, scan.damaged, scan.torn_bytes) == (log.end, [], 0)


def test_a_damaged_frame_behind_the_flushed_mark_is_a_torn_tail(log: CommitLog, fs: FaultyFileSystem) -> None:
    append_batch(log, 0)
    flush(log)
    torn = append_batch(log, 1)
    append_batch(log, 2)
    log.write()
    rot(log, fs, torn + 150)
    scan, whole, lost = scanned(log)
    assert (scan.position, whole, lost, scan.damaged) == (torn, [0], [], [])
    assert scan.torn_bytes == log.end - torn


@pytest.mark.parametrize("at", [0, 8, 24, 50, 91])
def test_a_header_below_the_flushed_mark_is_rot(log: CommitLog, fs: FaultyFileSystem, at: int) -> None:
    append_batch(log, 0)
    rotten = append_batch(log, 1)
    flush(log)
    after = append_batch(log, 2)
    log.write()
    rot(log, fs, rotten + at)
    scan, whole, lost = scanned(log)
    assert (whole, lost, scan.damaged, scan.position) == ([0, 2], [], [(rotten, after)], log.end)


def test_of_a_payload_below_the_flushed_mark_the_header_is_still_told(log: CommitLog, fs: FaultyFileSystem) -> None:
    append_batch(log, 0)
    rotten = append_batch(log, 1)
    flush(log)
    after = append_batch(log, 2)
    log.write()
    rot(log, fs, rotten + 130)
    scan, whole, lost = scanned(log)
    assert (whole, lost, scan.damaged) == ([0, 2], [1], [(rotten, after)])


def test_neighbouring_damage_is_one_stretch(log: CommitLog, fs: FaultyFileSystem) -> None:
    positions = [append_batch(log, offset) for offset in range(6)]
    flush(log)
    append_batch(log, 6)
    log.write()
    rot(log, fs, positions[1] + 130)
    rot(log, fs, positions[2] + 2)
    rot(log, fs, positions[4] + 2)
    scan, whole, lost = scanned(log)
    assert whole == [0, 3, 5, 6]
    assert lost == [1]
    assert scan.damaged == [(positions[1], positions[3]), (positions[4], positions[5])]


def test_rot_without_a_frame_behind_it_ends_where_the_log_was_flushed(log: CommitLog, fs: FaultyFileSystem) -> None:
    first = append_batch(log, 0)
    flush(log)
    rot(log, fs, first + 10)
    scan, whole, _ = scanned(log, flushed=log.end)  # a checkpoint knows it
    assert (scan.position, whole, scan.damaged) == (log.end, [], [(first, log.end)])
    scan, whole, _ = scanned(log)  # nobody knows it
    assert (scan.position, whole, scan.damaged) == (first, [], [])


def test_marks_of_later_segments_count(log: CommitLog, fs: FaultyFileSystem) -> None:
    rotten = append_batch(log, 0)
    after = append_batch(log, 1, b"x" * 60_000)
    flush(log)
    append_batch(log, 2, b"x" * 60_000)
    log.write()
    assert len(log.segments) == 2
    rot(log, fs, rotten + 3)
    scan, whole, _ = scanned(log)
    assert (whole, scan.damaged) == ([1, 2], [(rotten, after)])


def test_a_frame_of_an_earlier_generation_is_not_gone_on_with(log: CommitLog) -> None:
    append_batch(log, 0)
    log.generation = 5
    append_batch(log, 1)
    log.generation = 4
    stale = append_batch(log, 2)
    log.write()
    scan, whole, _ = scanned(log)
    assert (whole, scan.position, scan.generation) == ([0, 1], stale, 5)
    assert scanned(log, generation=5)[1] == []


def test_old_frames_that_stand_elsewhere_are_no_frames(log: CommitLog, fs: FaultyFileSystem) -> None:
    """As in a recycled segment: whole, valid, at the wrong place."""
    append_batch(log, 0)
    log.write()
    segment = fs.names["log/00000000000000000000"]
    segment.cache[log.end : 2 * log.end] = segment.cache[: log.end]
    scan, whole, _ = scanned(log)
    assert (whole, scan.position, scan.damaged, scan.torn_bytes) == ([0], log.end, [], 0)


def test_a_group_comes_as_a_whole(log: CommitLog) -> None:
    append_group(log, b"one", b"two", b"three")
    log.write()
    scan = Scan(log.segments, 0, 0, 0)
    assert [bytes(payload or b"") for _, payload in scan.frames()] == [b"one", b"two", b"three"]


@pytest.mark.parametrize("part", [0, 1, 2])
def test_a_group_whose_tail_is_torn_never_was(log: CommitLog, fs: FaultyFileSystem, part: int) -> None:
    append_batch(log, 0)
    begin = append_group(log, b"one", b"two", b"three")
    log.write()
    rot(log, fs, begin + part * 95 + 93)
    scan = Scan(log.segments, 0, 0, 0)
    assert [frame.kind for frame, _ in scan.frames()] == [Kind.BATCH]
    assert (scan.position, scan.damaged) == (begin, [])


@pytest.mark.parametrize("part", [0, 1, 2])
@pytest.mark.parametrize("byte", [3, 93])
def test_a_group_with_a_rotten_part_is_lost_as_a_whole(
    log: CommitLog, fs: FaultyFileSystem, part: int, byte: int
) -> None:
    begin = append_group(log, b"one", b"two", b"three")
    flush(log)
    append_batch(log, 0)
    log.write()
    rot(log, fs, begin + part * 95 + byte)
    scan = Scan(log.segments, 0, 0, 0)
    assert [frame.kind for frame, _ in scan.frames()] == [Kind.BATCH]
    (damage,) = scan.damaged
    assert damage[0] == begin
    assert scan.position == log.end


def test_parts_of_two_groups_are_never_put_together(log: CommitLog, fs: FaultyFileSystem) -> None:
    first = append_group(log, b"a-one", b"a-two")
    second = append_group(log, b"b-one", b"b-two")
    flush(log)
    append_batch(log, 0)
    log.write()
    rot(log, fs, first + 97 + 2)  # the second part of the first …
    rot(log, fs, second + 2)  # … and the first part of the second
    scan = Scan(log.segments, 0, 0, 0)
    assert [bytes(payload or b"")[:1] for frame, payload in scan.frames() if frame.kind == Kind.CONTROL] == []
    assert scan.position == log.end


def test_a_mark_above_the_log_is_not_believed(log: CommitLog) -> None:
    append_batch(log, 0)
    log.write()
    scan, whole, _ = scanned(log, flushed=10 * SEGMENT)
    assert whole == [0]
    assert scan.position == SEGMENT
    assert scan.damaged == [(log.end, SEGMENT)]


def test_a_frame_at_the_edge_of_a_search_window_is_found(monkeypatch: pytest.MonkeyPatch, fs: FaultyFileSystem) -> None:
    """The search for whole frames goes in windows; here they are tiny, and frames begin at and around their edges."""
    monkeypatch.setattr("halfmoon.core.storage.scan._LOW_BYTES", 1)
    monkeypatch.setattr("halfmoon.core.storage.scan._SHIFT", 8)
    log = open_log(fs)
    positions = [append_batch(log, offset, b"x" * (offset % 90)) for offset in range(200)]
    flush(log)
    append_batch(log, 200)
    log.write()
    for position in positions[:-1]:
        rot(log, fs, position)
        _, whole, _ = scanned(log)
        assert len(whole) == 200, position
        rot(log, fs, position)
