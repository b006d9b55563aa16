"""The commitlog by itself: appending, rolling, writing, syncing, running out of disk, recycling."""

from __future__ import annotations

import contextlib
import errno
from pathlib import Path

import pytest

from halfmoon.config.settings import load_settings
from halfmoon.core.storage import commitlog
from halfmoon.core.storage.commitlog import CommitLog
from halfmoon.core.storage.files import OsFileSystem
from halfmoon.core.storage.frame import HEADER_BYTES, Kind, control_crc
from halfmoon.core.storage.local import LocalStorage
from halfmoon.core.storage.log_files import SPARE, list_segments, segment_path
from halfmoon.core.storage.scan import Scan
from halfmoon.errors import BrokerError, Fault, StartError, StorageError
from halfmoon.testing.faulty_files import FaultyFileSystem
from tests.core.log_bench import SEGMENT, append_batch, expire, flush, open_log, remove_retired


@pytest.fixture
def log(fs: FaultyFileSystem) -> CommitLog:
    return open_log(fs)


def append_control(log: CommitLog, payload: bytes = b"control") -> int:
    return log.append(Kind.CONTROL, -1, -1, 0, 0, 0, 0, 0, payload, payload_crc=control_crc(payload))


def offsets(log: CommitLog) -> list[int]:
    return [frame.base_offset for frame, _ in Scan(log.segments, log.start, 0, 0).frames() if frame.kind == Kind.BATCH]


def fill(log: CommitLog, segments: int, size: int = 9_000) -> int:
    """Append until there are so many segments; returns how many batches that took."""
    count = 0
    while len(log.segments) < segments:
        append_batch(log, count, b"x" * size)
        count += 1
    return count


# -- the three ends ----------------------------------------------------------------------------------------------------


def test_appended_is_not_written_and_written_is_not_flushed(log: CommitLog) -> None:
    append_batch(log, 0)
    end = log.end
    assert (log.flushed, log.written) == (0, 0)
    assert log.sync_job() is None
    log.write()
    assert (log.flushed, log.written) == (0, end)
    job = log.sync_job()
    assert job is not None
    append_batch(log, 1)
    log.write()
    job.run()
    log.finish_sync(job, None)
    assert log.flushed == end < log.written


def test_frames_say_what_was_flushed_when_they_were_appended(log: CommitLog) -> None:
    append_batch(log, 0)
    flush(log)
    first_end = log.end
    append_batch(log, 1)
    append_batch(log, 2)
    log.write()
    marks = [frame.flushed for frame, _ in Scan(log.segments, 0, 0, 0).frames()]
    assert marks == [0, first_end, first_end]


def test_what_is_flushed_survives_power_loss(fs: FaultyFileSystem, log: CommitLog) -> None:
    for offset in range(30):
        append_batch(log, offset, b"x" * 9_000)
        flush(log)
    for _ in range(10):
        after = CommitLog(fs.kill().power_loss(), SEGMENT, 0)
        after.open()
        assert offsets(after) == list(range(30))


def test_the_payload_is_taken_when_it_is_written(log: CommitLog) -> None:
    """By reference: that is what saves the copy, and why the caller must keep it until then."""
    payload = bytearray(b"before")
    log.append(Kind.CONTROL, -1, -1, 0, 0, 0, 0, 0, payload, payload_crc=control_crc(b"after!"))
    payload[:] = b"after!"
    log.write()
    ((_, found),) = Scan(log.segments, 0, 0, 0).frames()
    assert found == b"after!"


def test_short_writes_lose_nothing(fs: FaultyFileSystem, log: CommitLog) -> None:
    fs.short_writes = True
    for offset in range(50):
        append_batch(log, offset, b"x" * 3_000)
    log.write()
    assert offsets(log) == list(range(50))


# -- rolling -----------------------------------------------------------------------------------------------------------


def test_a_segment_ends_with_a_frame_that_says_so(log: CommitLog) -> None:
    fill(log, 3)
    log.write()
    kinds = [frame.kind for frame, _ in Scan(log.segments, 0, 0, 0).frames()]
    assert kinds.count(Kind.END) == 2
    assert all(segment.size == SEGMENT for segment in log.segments)


@pytest.mark.parametrize("spare", range(HEADER_BYTES - 2, HEADER_BYTES + 3))
def test_a_frame_that_leaves_no_room_for_the_end_goes_into_the_next_segment(log: CommitLog, spare: int) -> None:
    append_control(log, b"x" * 1000)
    rest = log.segments[0].end - log.end
    append_control(log, b"y" * (rest - HEADER_BYTES - spare))
    append_control(log, b"z" * 10)
    log.write()
    payloads = [bytes(payload or b"") for frame, payload in Scan(log.segments, 0, 0, 0).frames() if frame.kind == 2]
    assert [payload[:1] for payload in payloads] == [b"x", b"y", b"z"]


def test_a_frame_larger_than_a_segment_gets_a_larger_one(log: CommitLog) -> None:
    append_batch(log, 0)
    append_batch(log, 1, b"x" * 3 * SEGMENT)
    append_batch(log, 2)
    log.write()
    assert offsets(log) == [0, 1, 2]
    assert [segment.size > SEGMENT for segment in log.segments] == [False, True, False]


def test_a_segments_head_stands_before_the_frame_that_began_it(log: CommitLog) -> None:
    asked: list[int] = []

    def head_for(start: int) -> list[bytes]:
        asked.append(start)
        return [b"h" * 20_000, b"i" * 20_000]

    log.head = head_for
    rolled: list[int] = []
    log.on_roll = rolled.append
    append_batch(log, 0)
    append_batch(log, 1, b"x" * (SEGMENT - 1000))
    append_batch(log, 2, b"x" * (SEGMENT - 1000))
    log.write()
    assert asked == rolled == [segment.start for segment in log.segments]
    found = [(f.kind, f.part, f.parts) for f, _ in Scan(log.segments, 0, 0, 0).frames()]
    head = [(2, 0, 2), (2, 1, 2)]
    assert found == [*head, (1, 0, 1), (1, 0, 1), (3, 0, 1), *head, (1, 0, 1)]
    assert all(segment.size >= 4 * 40_000 for segment in log.segments), "heads must not be most of the log"


def test_a_frame_beyond_all_measure_is_refused(log: CommitLog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("halfmoon.core.storage.commitlog.MAX_FRAME_BYTES", 100_000)
    with pytest.raises(BrokerError) as caught:
        append_batch(log, 0, b"x" * 100_000)
    assert caught.value.fault is Fault.RECORD_LIST_TOO_LARGE
    assert log.end == 0


# -- segments grow with the log ----------------------------------------------------------------------------------------


@pytest.fixture
def growing(fs: FaultyFileSystem, monkeypatch: pytest.MonkeyPatch) -> CommitLog:
    monkeypatch.setattr(commitlog, "FIRST_SEGMENT_BYTES", SEGMENT // 8)
    return open_log(fs)


def test_a_young_log_takes_little_disk_and_its_segments_grow(growing: CommitLog) -> None:
    count = 0
    while len(growing.segments) < 6:
        append_batch(growing, count, b"x" * 5_000)
        count += 1
        if growing.wants_spare():
            growing.take_spare(growing.begin_spare()())
    flush(growing)
    eighth = SEGMENT // 8
    assert [segment.size for segment in growing.segments] == [eighth, eighth, 2 * eighth, 4 * eighth, SEGMENT, SEGMENT]
    assert offsets(growing) == list(range(count))


def test_with_the_default_settings_five_records_take_one_small_segment(tmp_path: Path) -> None:
    log = LocalStorage(OsFileSystem(tmp_path), load_settings({}, {}, {})).log
    log.open()
    log.resume(0, 1)
    for offset in range(5):
        append_batch(log, offset)
    flush(log)
    assert not log.wants_spare()
    log.close()
    taken = sum(path.stat().st_blocks * 512 for path in tmp_path.rglob("*"))
    assert 64 << 20 <= taken < 65 << 20


def one_of_many(fs: FaultyFileSystem, monkeypatch: pytest.MonkeyPatch, low_disk_bytes: int | None = 0) -> CommitLog:
    monkeypatch.setattr(commitlog, "FIRST_OF_MANY_BYTES", SEGMENT // 8)
    log = CommitLog(fs, SEGMENT, low_disk_bytes, one_of_many=True)
    log.open()
    log.resume(0, 1)
    return log


def test_one_of_many_logs_takes_a_quarter_more_at_a_time(fs: FaultyFileSystem, monkeypatch: pytest.MonkeyPatch) -> None:
    log = one_of_many(fs, monkeypatch)
    fill(log, 20, 1_000)
    eighth = SEGMENT // 8
    sizes = [segment.size for segment in log.segments]
    assert sizes[:5] == [eighth] * 5
    assert sizes[-1] == SEGMENT
    for nth, size in enumerate(sizes):
        assert size == min(SEGMENT, max(eighth, sum(sizes[:nth]) // 4))


def test_one_of_many_logs_leaves_room_for_the_others(fs: FaultyFileSystem, monkeypatch: pytest.MonkeyPatch) -> None:
    log = one_of_many(fs, monkeypatch, None)
    eighth = SEGMENT // 8
    assert log.low_disk_mark == commitlog.LOGS * eighth
    fs.free = (commitlog.LOGS + 1) * eighth - 1
    with pytest.raises(BrokerError, match="the disk is nearly full"):
        append_batch(log, 0)
    fs.free += 1
    log.low_disk = False
    append_batch(log, 0)
    fs.free = 100 * SEGMENT
    fill(log, 40, 1_000)
    assert log.low_disk_mark == max(commitlog.LOGS * eighth, 2 * log.next_bytes)


def test_files_that_are_other_logs_too_are_not_used_again(
    fs: FaultyFileSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others may still send from one of which they have removed the name; and the log grows by what is its own."""
    log = one_of_many(fs, monkeypatch)
    fill(log, 5, 1_000)
    flush(log)
    own = log.segments[2].start
    log.reusable_from = own
    assert SEGMENT // 8 <= log.next_bytes < (log.segments[-1].end - log.start) // 4
    for _ in range(2):
        expire(log)
        assert not log._has_next()
    expire(log)
    assert log._has_next()


def test_growing_goes_on_after_a_start_and_follows_what_has_expired(growing: CommitLog, fs: FaultyFileSystem) -> None:
    count = fill(growing, 4)
    flush(growing)
    again = CommitLog(fs.kill(), SEGMENT, 0)
    again.open()
    assert again.next_bytes == SEGMENT
    while len(growing.segments) > 1:
        expire(growing)
    flush(growing)
    assert growing.next_bytes == growing.segments[0].size
    append_batch(growing, count, b"x" * 9_000)


def test_a_small_file_that_expires_is_not_the_next_large_segment(growing: CommitLog, fs: FaultyFileSystem) -> None:
    fill(growing, 4)
    flush(growing)
    small = fs.names[segment_path(0)]
    expire(growing)
    flush(growing)
    assert small not in fs.names.values()


def test_a_spare_made_before_the_start_is_kept_if_it_is_large_enough(growing: CommitLog, fs: FaultyFileSystem) -> None:
    append_batch(growing, 0, b"x" * 7_000)
    growing.take_spare(growing.begin_spare()())
    flush(growing)
    spare = fs.names[SPARE]
    again = open_log(fs, generation=2)
    append_batch(again, 1, b"x" * 5_000)
    assert fs.names[segment_path(again.segments[-1].start)] is spare


def test_what_must_be_noted_on_a_full_disk_takes_small_segments(growing: CommitLog, fs: FaultyFileSystem) -> None:
    fill(growing, 5)
    growing.low_disk_bytes = None
    fs.free = 2 * SEGMENT
    while not growing.low_disk:
        with contextlib.suppress(BrokerError):
            append_batch(growing, 0, b"x" * 5_000)
    before = len(growing.segments)
    while len(growing.segments) < before + 3:
        append_control(growing, b"c" * 5_000)
    assert [segment.size for segment in growing.segments[before:]] == [SEGMENT // 8] * 3


# -- a full disk -------------------------------------------------------------------------------------------------------


def test_without_room_for_a_segment_batches_are_refused_and_control_frames_fit(fs: FaultyFileSystem) -> None:
    log = open_log(fs, low_disk_bytes=2 * SEGMENT)
    fs.free = 4 * SEGMENT
    offset = 0

    def append_until_refused() -> None:
        nonlocal offset
        while True:
            append_batch(log, offset, b"x" * 9_000)
            offset += 1

    with pytest.raises(BrokerError) as caught:
        append_until_refused()
    assert caught.value.fault is Fault.KAFKA_STORAGE_ERROR
    assert log.low_disk
    log.write()
    assert offsets(log) == list(range(offset))
    with pytest.raises(BrokerError):
        append_batch(log, offset)
    # Two segments' worth of control frames fit into what was kept back for them.
    for _ in range(2 * SEGMENT // 10_000):
        append_control(log, b"c" * 9_000)
    flush(log)
    assert log.failed is None
    # Somebody makes room, and the owner says so.
    fs.free += 10 * SEGMENT
    assert log.has_room()
    log.low_disk = False
    append_batch(log, offset)
    log.write()
    assert offsets(log) == list(range(offset + 1))


def test_a_disk_that_is_really_full_changes_nothing(fs: FaultyFileSystem, log: CommitLog) -> None:
    fill(log, 1)
    fs.free = 10
    before = log.end, len(log.segments), fs.listdir("log")
    with pytest.raises(BrokerError) as caught:
        append_control(log, b"x" * SEGMENT)
    assert caught.value.fault is Fault.KAFKA_STORAGE_ERROR
    assert (log.end, len(log.segments), fs.listdir("log")) == before
    append_control(log)  # fits into what is there


def test_an_error_about_space_says_what_is_needed_what_there_is_and_the_setting(fs: FaultyFileSystem) -> None:
    log = open_log(fs, low_disk_bytes=2 * SEGMENT)
    fs.free = 100_000
    with pytest.raises(BrokerError) as caught:
        append_batch(log, 0)
    assert str(caught.value) == (
        "the disk is nearly full: the next log segment takes 64KiB and 128KiB are to stay free (log.low_disk_bytes, "
        "log.segment_bytes), but only 97.7KiB are free: the broker refuses record batches"
    )
    fs.free = 10
    with pytest.raises(BrokerError, match=r"no room for another log segment of 64KiB \(log.segment_bytes\): No space"):
        append_control(log)


def test_a_segment_that_cannot_be_made_for_another_reason_is_no_full_disk(
    fs: FaultyFileSystem, log: CommitLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def refuse(path: str, *, create: bool = False) -> None:
        asked.append(path)
        raise OSError(errno.EMFILE, "Too many open files")

    append_batch(log, 0)
    with monkeypatch.context() as broken:
        broken.setattr(fs, "open", refuse)
        for _ in range(3):
            with pytest.raises(BrokerError, match="another log segment cannot be made: Too many open files"):
                append_batch(log, 1, b"x" * SEGMENT)
    assert len(asked) == 1, "not every batch tries again"
    assert not log.low_disk
    append_batch(log, 1)  # fits into what is there
    log.no_segment = ""  # as the clock's turn does
    append_batch(log, 2, b"x" * SEGMENT)
    log.write()
    assert offsets(log) == [0, 1, 2]


def test_no_segment_is_made_ahead_below_the_mark(fs: FaultyFileSystem) -> None:
    log = open_log(fs, low_disk_bytes=2 * SEGMENT)
    append_batch(log, 0, b"x" * (SEGMENT * 3 // 4))
    assert log.wants_spare()
    fs.free = 3 * SEGMENT - 1
    assert not log.wants_spare()


# -- broken disks ------------------------------------------------------------------------------------------------------


def test_a_failed_write_ends_the_writing_life_of_the_log(fs: FaultyFileSystem, log: CommitLog) -> None:
    append_batch(log, 0)
    flush(log)
    append_batch(log, 1)
    fs.fail_write = True
    with pytest.raises(StorageError):
        log.write()
    fs.fail_write = False
    assert log.failed is not None
    with pytest.raises(BrokerError) as caught:
        append_batch(log, 2)
    assert caught.value.fault is Fault.KAFKA_STORAGE_ERROR
    log.write()
    assert log.sync_job() is None
    assert offsets(log) == [0]


def test_a_failed_sync_is_never_tried_again(fs: FaultyFileSystem, log: CommitLog) -> None:
    append_batch(log, 0)
    log.write()
    job = log.sync_job()
    assert job is not None
    fs.fail_sync = True
    with pytest.raises(OSError, match="Input/output"):
        job.run()
    log.finish_sync(job, OSError("Input/output error"))
    fs.fail_sync = False
    assert log.flushed == 0
    assert log.sync_job() is None
    with pytest.raises(BrokerError):
        append_control(log)


# -- opening -----------------------------------------------------------------------------------------------------------


def test_a_gap_between_segments_reads_as_zeroes(fs: FaultyFileSystem, log: CommitLog) -> None:
    fill(log, 3)
    flush(log)
    fs.remove(segment_path(log.segments[1].start))
    again = CommitLog(fs, SEGMENT, 0)
    again.open()
    assert again.missing == [(SEGMENT, 2 * SEGMENT)]
    assert [(segment.start, segment.end) for segment in again.segments][1] == (SEGMENT, 2 * SEGMENT)
    assert not any(again.segments[1].view)
    assert not fs.names.get(segment_path(SEGMENT)), "nothing is written in its place"
    assert again.segments[1].mapping.release()


def test_segments_that_overlap_stop_the_start(fs: FaultyFileSystem, log: CommitLog) -> None:
    fill(log, 3)
    flush(log)
    log.close()
    fs.open(segment_path(0)).pwritev([b"x"], SEGMENT + 10)
    with pytest.raises(StartError, match="segment 00000000000000000000 ends at 65547, but the next begins at 65536"):
        CommitLog(fs, SEGMENT, 0).open()


def test_a_segment_that_power_left_empty_is_forgotten(fs: FaultyFileSystem, log: CommitLog) -> None:
    append_batch(log, 0)
    flush(log)
    fs.open(segment_path(SEGMENT), create=True)
    again = CommitLog(fs, SEGMENT, 0)
    again.open()
    assert [segment.start for segment in again.segments] == [0]


def test_other_files_in_the_folder_are_left_alone_but_for_unfinished_ones(fs: FaultyFileSystem, log: CommitLog) -> None:
    append_batch(log, 0)
    flush(log)
    fs.open("log/notes.txt", create=True)
    fs.open(segment_path(0) + ".new", create=True)
    CommitLog(fs, SEGMENT, 0).open()
    assert fs.listdir("log") == ["00000000000000000000", "notes.txt"]


def test_segments_behind_the_end_are_taken_back(fs: FaultyFileSystem, log: CommitLog) -> None:
    fill(log, 4)
    flush(log)
    again = CommitLog(fs, SEGMENT, 0)
    again.open()
    again.resume(SEGMENT + 100, 2)
    assert [segment.start for segment in again.segments] == [0, SEGMENT]
    assert [start for start, _ in list_segments(fs)] == [0, SEGMENT]
    assert (again.end, again.written, again.flushed, again.generation) == (SEGMENT + 100,) * 3 + (2,)
    again.resume(SEGMENT, 2)
    assert [segment.start for segment in again.segments] == [0], "what comes next must get a head first"
    again.resume(0, 2)
    assert again.segments == []
    append_batch(again, 0)
    again.write()
    assert offsets(again) == [0]


# -- recycling ---------------------------------------------------------------------------------------------------------


def test_a_segment_made_ahead_is_used_by_the_next_roll(fs: FaultyFileSystem, log: CommitLog) -> None:
    append_batch(log, 0, b"x" * 40_000)
    assert log.wants_spare()
    make = log.begin_spare()
    assert not log.wants_spare(), "one at a time"
    log.take_spare(make())
    assert SPARE in fs.names
    inode = fs.names[SPARE]
    append_batch(log, 1, b"x" * 40_000)
    assert SPARE not in fs.names
    assert fs.names[segment_path(SEGMENT)] is inode


def test_making_a_segment_ahead_may_fail(fs: FaultyFileSystem, log: CommitLog) -> None:
    append_batch(log, 0, b"x" * 40_000)
    make = log.begin_spare()
    fs.free = 10
    with pytest.raises(OSError, match="No space"):
        make()
    log.take_spare(None)
    assert SPARE not in fs.names
    fs.free = 1 << 30
    assert log.wants_spare()


def test_an_expired_segment_is_reused_once_the_disk_knows_that_it_is_none(fs: FaultyFileSystem, log: CommitLog) -> None:
    count = fill(log, 3)
    flush(log)
    inode = fs.names[segment_path(0)]
    expire(log)
    assert fs.names[SPARE] is inode
    assert log.start == SEGMENT
    append_batch(log, count, b"x" * 60_000)
    assert fs.names[SPARE] is inode, "not before a sync of the folder"
    flush(log)
    append_batch(log, count + 1, b"x" * 60_000)
    assert fs.names[segment_path(log.segments[-1].start)] is inode
    log.write()
    assert offsets(log)[-2:] == [count, count + 1]


def test_a_segment_expires_while_one_is_made_ahead(fs: FaultyFileSystem, log: CommitLog) -> None:
    """The thread that makes one and the loop that recycles one must not get into each other's way."""
    count = fill(log, 3)
    append_batch(log, count, b"x" * 40_000)
    flush(log)
    make = log.begin_spare()
    expire(log)
    assert segment_path(0) not in fs.names
    log.take_spare(make())
    spare = fs.names[SPARE]
    append_batch(log, count + 1, b"x" * 60_000)
    assert fs.names[segment_path(log.segments[-1].start)] is spare
    flush(log)
    assert offsets(log)[-1] == count + 1


def test_while_a_slice_is_being_sent_the_segment_is_not_reused(fs: FaultyFileSystem, log: CommitLog) -> None:
    fill(log, 3)
    flush(log)
    piece = log.segments[0].view[1000:9000]
    before = bytes(piece)
    expire(log)
    assert SPARE not in fs.names
    assert segment_path(0) not in fs.names, "a restart must not find it"
    log.bury_zombies()
    remove_retired(log)
    assert piece == before
    piece.release()
    log.bury_zombies()
    remove_retired(log)
    assert log._zombies == []


def test_a_segment_that_a_backup_shares_is_not_reused(fs: FaultyFileSystem, log: CommitLog) -> None:
    fill(log, 3)
    flush(log)
    fs.names[segment_path(0)].links = 2
    expire(log)
    flush(log)
    assert SPARE not in fs.names
    assert log.wants_spare() or log.end - log.segments[-1].start <= SEGMENT // 2


def test_a_spare_left_by_an_earlier_process_is_taken_over(fs: FaultyFileSystem, log: CommitLog) -> None:
    count = fill(log, 3)
    append_batch(log, count, b"x" * 40_000)
    flush(log)
    expire(log)
    spare = fs.names[SPARE]
    again = open_log(fs.kill(), generation=2)
    assert not again.wants_spare()
    append_batch(again, count + 1, b"x" * 60_000)
    assert SPARE not in again.fs.names  # type: ignore[attr-defined]
    assert len(spare.cache) == SEGMENT


def test_a_spare_of_another_size_is_thrown_away(fs: FaultyFileSystem) -> None:
    open_log(fs)
    fs.open(SPARE, create=True).allocate(SEGMENT // 2)
    open_log(fs)
    assert SPARE not in fs.names
