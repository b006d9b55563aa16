"""The note of how far the log was ever written: it is never below what it must not be below, and a start's search
behind a torn tail ends there, with the same result as one that reads everything."""

from __future__ import annotations

import random

import pytest

from halfmoon.core.storage import bounds
from halfmoon.core.storage.bounds import Noted
from halfmoon.core.storage.commitlog import CommitLog
from halfmoon.core.storage.frame import Kind
from halfmoon.core.storage.log_files import segment_path
from halfmoon.core.storage.scan import Scan
from halfmoon.errors import BrokerError, StorageError
from halfmoon.testing.faulty_files import FaultyFileSystem
from tests.core.log_bench import SEGMENT, append_batch, expire, flush, new_fs, open_log, rot

AHEAD = 8 << 10


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "AHEAD_BYTES", AHEAD)
    monkeypatch.setattr(bounds, "SLACK_BYTES", AHEAD)


@pytest.fixture
def log(fs: FaultyFileSystem) -> CommitLog:
    return open_log(fs)


def opened(fs: FaultyFileSystem) -> CommitLog:
    log = CommitLog(fs, SEGMENT, 0)
    log.open()
    return log


def scanned(log: CommitLog, noted: Noted | None, generation: int = 0) -> tuple[Scan, list[int]]:
    scan = Scan(log.segments, log.start, generation, 0, ceiling=noted)
    found = [frame.base_offset for frame, _ in scan.frames() if frame.kind == Kind.BATCH]
    return scan, found


def searched_bytes(fs: FaultyFileSystem) -> int:
    """How much of the log a start reads to search it."""
    log = opened(fs)
    before = fs.bytes_read
    scanned(log, log.ceiling)
    return fs.bytes_read - before


@pytest.mark.parametrize("seed", range(20))
def test_nothing_written_is_above_it_and_nothing_flushed_is_above_the_disks(seed: int) -> None:
    dice = random.Random(seed)
    fs = new_fs(seed)
    log = open_log(fs)
    job = None
    for offset in range(150):
        append_batch(log, offset, b"x" * dice.randrange(6_000))
        if dice.random() < 0.6:
            log.write()
        if job is None:
            job = log.sync_job() if dice.random() < 0.4 else None
        elif dice.random() < 0.5:
            job.run()
            log.finish_sync(job, None)
            job = None
        if offset % 10 == 0:
            killed, lost = bounds.load(fs.kill()), bounds.load(fs.power_loss())
            assert killed is not None
            assert killed.position >= log.written
            assert log.flushed == 0 or (lost is not None and lost.position >= log.flushed)


def recycled_with_a_torn_tail(fs: FaultyFileSystem, log: CommitLog) -> int:
    """The last segment is full of old frames behind a torn one; returns how many frames stand before that."""
    count = 0
    while len(log.segments) < 3:
        append_batch(log, count, b"x" * 900)
        count += 1
    flush(log)
    expire(log)
    flush(log)
    while len(log.segments) < 3:
        append_batch(log, count, b"x" * 900)
        count += 1
    flush(log)
    torn = append_batch(log, count)
    log.write()
    rot(log, fs, torn)
    assert fs.names[segment_path(log.segments[-1].start)].cache.count(b"HMf1") > 50
    return count


def test_the_search_behind_a_torn_tail_ends_at_the_note(fs: FaultyFileSystem, log: CommitLog) -> None:
    recycled_with_a_torn_tail(fs, log)
    with_note = searched_bytes(fs.kill())
    fs.remove(bounds.PATH)
    without = searched_bytes(fs.kill())
    assert with_note <= 3 * AHEAD
    assert without > SEGMENT * 3 // 4


@pytest.mark.parametrize("spoil", ["missing", "damaged", "short", "empty", "of another kind"])
def test_a_note_that_cannot_be_read_says_nothing(fs: FaultyFileSystem, log: CommitLog, spoil: str) -> None:
    recycled_with_a_torn_tail(fs, log)
    cache = fs.names[bounds.PATH].cache
    if spoil == "missing":
        fs.remove(bounds.PATH)
    elif spoil == "damaged":
        cache[9] ^= 1
    elif spoil == "of another kind":
        cache[0] ^= 1
    else:
        del cache[0 if spoil == "empty" else 19 :]
    assert bounds.load(fs) is None
    assert searched_bytes(fs) > SEGMENT * 3 // 4


def test_a_note_of_an_earlier_generation_says_nothing(fs: FaultyFileSystem, log: CommitLog) -> None:
    """A version before the note has written behind it."""
    append_batch(log, 0)
    flush(log)
    before = bytes(fs.names[bounds.PATH].cache)
    end = log.end
    later = opened(fs)
    later.resume(end, 2)
    rows = [append_batch(later, offset, b"x" * 900) for offset in range(1, 50)]
    flush(later)
    append_batch(later, 50)
    flush(later)
    fs.names[bounds.PATH].cache[:] = before
    noted = opened(fs).ceiling
    assert noted is not None
    assert noted.generation == 1
    for position in rows[:-1]:  # also the first of that generation, behind which all others stand
        rot(later, fs, position)
        assert scanned(opened(fs), noted)[0].damaged == scanned(opened(fs), None)[0].damaged != []
        rot(later, fs, position)


@pytest.mark.parametrize("seed", range(60))
def test_a_search_up_to_the_note_finds_what_a_search_of_everything_finds(seed: int) -> None:
    """Power goes at some moment, with less than SLACK_BYTES of it unsynced, and then something rots."""
    dice = random.Random(seed)
    fs = new_fs(seed)
    log = open_log(fs)
    frames = []
    for offset in range(dice.randrange(1, 200)):
        frames.append(append_batch(log, offset, b"x" * dice.randrange(1_500)))
        if dice.random() < 0.7:
            log.write()
        if dice.random() < 0.5 or log.end - log.flushed > AHEAD // 2:
            flush(log)
    after = fs.power_loss() if dice.random() < 0.7 else fs.kill()
    found = opened(after)
    if not found.segments:
        return
    for position in dice.sample(frames, min(len(frames), dice.randrange(3))):
        if position < found.segments[-1].end:
            rot(found, after, position + dice.randrange(92))
    bounded, whole = scanned(found, found.ceiling), scanned(found, None)
    assert bounded[1] == whole[1]
    assert (bounded[0].position, bounded[0].damaged) == (whole[0].position, whole[0].damaged)
    assert bounded[0].torn_bytes == whole[0].torn_bytes


def test_what_a_start_proves_is_below_a_note_that_is_on_the_disk(fs: FaultyFileSystem, log: CommitLog) -> None:
    """The disk took no sync for long before the power went, and the bytes came there all the same."""
    append_batch(log, 0)
    flush(log)
    old = bytes(fs.names[bounds.PATH].disk)
    end = 0
    for offset in range(1, 30):
        append_batch(log, offset, b"x" * 900)
        end = log.end
    flush(log)
    fs.names[bounds.PATH].disk[:] = fs.names[bounds.PATH].cache[:] = old
    again = opened(fs.power_loss())
    again.prove(0, end)
    assert isinstance(again.fs, FaultyFileSystem)
    noted = bounds.load(again.fs.power_loss())
    assert noted is not None
    assert noted.position >= end


def test_a_full_disk_has_no_note_and_writes_all_the_same(fs: FaultyFileSystem, log: CommitLog) -> None:
    append_batch(log, 0)
    flush(log)
    fs.remove(bounds.PATH)
    fs.free = 0
    again = open_log(fs, generation=2)
    with pytest.raises(BrokerError):
        append_batch(again, 1, b"x" * SEGMENT)
    assert bounds.load(fs) is None


def test_a_disk_that_refuses_the_note_has_failed(fs: FaultyFileSystem, log: CommitLog) -> None:
    append_batch(log, 0)
    flush(log)
    fs.spoil(bounds.PATH)
    for offset in range(1, 30):
        append_batch(log, offset, b"x" * 900)
    with pytest.raises(StorageError):
        log.write()
    assert log.failed is not None


def test_the_tail_is_asked_of_the_disk_in_large_pieces(fs: FaultyFileSystem, log: CommitLog) -> None:
    for offset in range(50):
        append_batch(log, offset, b"x" * 900)
    flush(log)
    fs.expected.clear()
    scanned(opened(fs), None)
    assert fs.expected == [(0, SEGMENT)]
