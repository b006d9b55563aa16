"""The scrubber finds what rots on the disk, says so once, and disturbs nobody."""

from __future__ import annotations

import errno
import logging
import os
import random

import pytest

from halfmoon.core.storage.log_files import segment_path
from halfmoon.errors import BrokerError, Fault
from halfmoon.services.scrubber import saved as notes
from halfmoon.services.scrubber.reading import CACHE_BYTES, SECTORS_BYTES
from halfmoon.services.scrubber.service import FRAME_BYTES, MOST_BYTES, QUIET_MS
from halfmoon.testing.faulty_files import FaultyFile, FaultyFileSystem
from halfmoon.testing.node import BareNode
from tests.core.bench import SEGMENT, VirtualClock, flip, open_broker, partition_of, read_all, send, shard_of, turn
from tests.core.clean_bench import COMPACT, clean, put
from tests.services.scrubber.scrub_bench import DAY_MS, filled, job_of, look_again, place, rot, run, scrub

PAYLOAD = 200
"""A byte of a frame's payload, and one of its header."""
HEADER = 20


def said(caplog: pytest.LogCaptureFixture, event: str) -> list[str]:
    return [record.getMessage() for record in caplog.records if f"event={event}" in record.getMessage()]


def refused(broker: BareNode, offset: int, index: int = 0) -> bool:
    try:
        broker.read(partition_of(broker, "t", index), offset, 1 << 20, min_one=True)
    except BrokerError as error:
        return error.fault is Fault.CORRUPT_MESSAGE
    return False


# -- finding -----------------------------------------------------------------------------------------------------------


def test_a_whole_log_is_read_to_its_end_and_nothing_is_said(
    fs: FaultyFileSystem, clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    broker = filled(fs, clock)
    end = broker.log.end
    scrub(broker, clock)
    scrubber = broker.scrubber
    assert scrubber.problems() == [] == scrubber.corrupt
    assert said(caplog, "corruption_found") == []
    rests = sum(segment.size for segment in broker.log.segments)  # ends of segments, which hold nothing
    assert rests - 6_000 * len(broker.log.segments) - SEGMENT < scrubber.read_bytes <= rests
    assert scrubber.ended_ms == clock.now_ms
    assert broker.log.end == end, "it writes nothing into the log"


@pytest.mark.parametrize("byte", [PAYLOAD, HEADER])
def test_rot_is_found_told_once_and_kept_from_readers(
    fs: FaultyFileSystem, clock: VirtualClock, caplog: pytest.LogCaptureFixture, byte: int
) -> None:
    broker = filled(fs, clock)
    position = place(broker, "t", 7, index=1)
    path = rot(broker, fs, position + byte)
    assert not refused(broker, 7, index=1), "until it is found it is served as it is"
    before, end = dict(read_all(broker, "t", 0)), broker.log.end
    with caplog.at_level(logging.INFO):
        scrub(broker, clock)
    (line,) = said(caplog, "corruption_found")
    (stretch,) = broker.scrubber.corrupt
    assert stretch.low == position
    assert f"file={path} from={position} to={stretch.high} topic=t partition=1 offsets=7-7" in line
    assert broker.health() == [
        "t-1 has lost offsets 7 to 7",
        f"{path} is corrupt, log positions {position} to {stretch.high}: t-1 offsets 7 to 7",
    ]
    assert refused(broker, 7, index=1)
    assert dict(read_all(broker, "t", 0)) == before
    assert sorted(dict(read_all(broker, "t", 1))) == [offset for offset in range(30) if offset != 7]
    clock.now_ms += 7 * DAY_MS
    scrub(broker, clock)
    assert len(said(caplog, "corruption_found")) == 1, "the next pass says nothing new"
    assert len(broker.scrubber.corrupt) == 1
    assert broker.log.end == end


def test_a_stretch_without_headers_is_named_by_the_index(
    fs: FaultyFileSystem, clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    broker = filled(fs, clock)
    low, high = place(broker, "t", 2), place(broker, "t", 4)
    rot(broker, fs, low, high - low)
    scrub(broker, clock)
    (stretch,) = broker.scrubber.corrupt
    assert (stretch.low, stretch.high) == (low, high)
    assert [(each.partition, each.low, each.high) for each in stretch.lost] == [(0, 2, 4), (1, 2, 4)]
    assert [line.split("topic=")[1] for line in said(caplog, "corruption_found")] == [
        "t partition=0 offsets=2-3", "t partition=1 offsets=2-3"
    ]  # fmt: skip
    assert all(refused(broker, offset, index) for offset in (2, 3) for index in (0, 1))


def test_a_control_record_costs_no_offsets(fs: FaultyFileSystem, clock: VirtualClock) -> None:
    broker = filled(fs, clock)
    rot(broker, fs, broker.log.segments[1].start + PAYLOAD)  # the snapshot at a segment's head
    scrub(broker, clock)
    (problem,) = broker.health()
    assert problem.endswith("no record is lost")


def test_records_that_are_deleted_are_not_lost(fs: FaultyFileSystem, clock: VirtualClock) -> None:
    broker = filled(fs, clock)
    rot(broker, fs, place(broker, "t", 3) + PAYLOAD)
    partition_of(broker, "t").move_start(10)
    scrub(broker, clock)
    (stretch,) = broker.scrubber.corrupt
    assert stretch.lost == []


def test_a_compacted_segment(fs: FaultyFileSystem, clock: VirtualClock) -> None:
    broker = open_broker(fs, clock)
    broker.create_topic("t", 1, COMPACT)
    for number in range(200):
        put(broker, "t", (b"k%d" % (number % 50), b"v" * 900))
    clean(broker, clock)
    (segment,) = broker.log.cleaned
    run_of_it = next(run for run in partition_of(broker, "t").queue.runs() if run.in_clean_file)
    flip(fs, f"cleaned/{segment.start:020d}", run_of_it.columns.position[run_of_it.low] - segment.start + 80)
    offset = run_of_it.first_offset
    scrub(broker, clock)
    (stretch,) = broker.scrubber.corrupt
    assert [(each.low, each.high) for each in stretch.lost] == [(offset, offset + 1)]
    assert refused(broker, offset)
    assert any(f"cleaned/{segment.start:020d} is corrupt" in problem for problem in broker.health())


def test_what_a_start_has_found_lost_is_not_told_again(fs: FaultyFileSystem, clock: VirtualClock) -> None:
    broker = filled(fs, clock)
    broker.close()
    fs.remove(segment_path(SEGMENT))
    rot(broker, fs, place(broker, "t", 29) + PAYLOAD)
    fs.remove("checkpoint")
    broker = open_broker(fs, clock)
    damaged = broker.report.damaged
    assert len(damaged) == 2
    scrub(broker, clock)
    assert broker.scrubber.corrupt == []


def test_a_sector_that_the_disk_cannot_read(
    fs: FaultyFileSystem, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = filled(fs, clock)
    segment = broker.log.segment_at(place(broker, "t", 7))
    bad = place(broker, "t", 7) - segment.start + 3_000
    original = FaultyFile.pread

    def pread(self: FaultyFile, length: int, position: int) -> bytes:
        if self._inode is fs.names[segment_path(segment.start)] and position <= bad < position + length:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return original(self, length, position)

    monkeypatch.setattr(FaultyFile, "pread", pread)
    scrub(broker, clock)
    sector = segment.start + bad - bad % SECTORS_BYTES
    frames = sorted((place(broker, "t", nth, index), index, nth) for index in range(2) for nth in range(30))
    ends = [low for low, *_ in frames[1:]]
    hit = [each for each, end in zip(frames, ends, strict=False) if each[0] < sector + SECTORS_BYTES and sector < end]
    lost = [(stretch.low, each.partition, each.low) for stretch in broker.scrubber.corrupt for each in stretch.lost]
    assert lost == hit != []
    assert refused(broker, 7)


def test_a_disk_that_fails_otherwise_is_tried_again(
    fs: FaultyFileSystem, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    broker = filled(fs, clock)

    def pread(self: FaultyFile, length: int, position: int) -> bytes:
        raise OSError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT))

    with monkeypatch.context() as patched:
        patched.setattr(FaultyFile, "pread", pread)
        for _ in range(3):
            job = job_of(broker.scrubber, clock)
            assert job is not None
            before_ms = clock.now_ms
            run(job)
            assert broker.scrubber.next_deadline() == before_ms + QUIET_MS
    assert broker.scrubber.problems() == [f"scrubbing failed: [Errno {errno.ETIMEDOUT}] Connection timed out"]
    assert len(said(caplog, "scrubbing_failed")) == 1
    scrub(broker, clock)
    assert broker.scrubber.problems() == []


# -- not disturbing ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [30, 5_000, 60_000])
def test_the_rate_is_kept(fs: FaultyFileSystem, clock: VirtualClock, size: int) -> None:
    rate = 256 << 10
    broker = filled(fs, clock, batches=60, size=size, scrubber={"bytes_per_second": rate})
    scrubber = broker.scrubber
    begun_ms, read = clock.now_ms + QUIET_MS, 0
    while not scrubber.passes:
        job = job_of(scrubber, clock)
        assert clock.now_ms >= begun_ms + 1000 * read // rate, "each piece waits until those before are paid for"
        before = fs.bytes_read
        if job is not None:
            run(job)
            assert scrubber.next_job() is None or scrubber.passes
        read += fs.bytes_read - before
        assert fs.bytes_read - before <= MOST_BYTES
    assert 1000 * read / rate <= clock.now_ms - begun_ms + 1000 * MOST_BYTES / rate
    assert scrubber.read_bytes <= read < 2 * scrubber.read_bytes + 100_000, "little is read twice"


def test_small_frames_count_as_larger_ones(fs: FaultyFileSystem, clock: VirtualClock) -> None:
    """What they cost is the processor's time."""
    broker = filled(fs, clock, batches=600, size=30, scrubber={"bytes_per_second": 256 << 10})
    begun_ms = clock.now_ms + QUIET_MS
    scrub(broker, clock)
    assert clock.now_ms - begun_ms >= 1000 * 600 * FRAME_BYTES // (256 << 10) - 1000


def test_logs_of_one_disk_share_the_rate(fs: FaultyFileSystem, clock: VirtualClock) -> None:
    broker = filled(fs, clock, batches=60, size=5_000, scrubber={"bytes_per_second": 256 << 10})
    broker.scrubber._logs = 4
    begun_ms = clock.now_ms + QUIET_MS
    scrub(broker, clock)
    assert clock.now_ms - begun_ms >= 4 * 1000 * (60 * 5_000 - MOST_BYTES // 4) // (256 << 10)
    shard = shard_of(0, broker.settings)._replace(shards=16)
    node = BareNode(FaultyFileSystem(random.Random(1)), broker.settings, clock, random.Random(1).randbytes, shard=shard)
    assert node.scrubber._logs == 16


def test_a_pass_begins_after_a_week_from_the_last_ones_beginning(fs: FaultyFileSystem, clock: VirtualClock) -> None:
    opened_ms = clock.now_ms
    broker = filled(fs, clock)
    assert broker.scrubber.next_deadline() == opened_ms + QUIET_MS
    scrub(broker, clock)
    due_ms = opened_ms + QUIET_MS + 7 * DAY_MS
    assert broker.scrubber.next_deadline() == due_ms
    clock.now_ms = due_ms - 1
    assert broker.scrubber.next_job() is None or broker.scrubber.passes == 1
    read = broker.scrubber.read_bytes
    scrub(broker, clock)
    assert broker.scrubber.passes == 2
    assert broker.scrubber.read_bytes == 2 * read


def test_what_was_not_in_memory_is_forgotten_again_and_nothing_else(fs: FaultyFileSystem, clock: VirtualClock) -> None:
    broker = filled(fs, clock)
    scrub(broker, clock)
    assert fs.forgotten == [], "all was in memory"
    fs.cold = True
    clock.now_ms += 7 * DAY_MS
    scrub(broker, clock)
    forgotten = sum(high - low for low, high in fs.forgotten)
    assert broker.scrubber.read_bytes // 2 <= forgotten <= 2 * broker.scrubber.read_bytes
    assert max(high - low for low, high in fs.forgotten) <= CACHE_BYTES


def test_what_is_wrong_in_memory_only_is_no_corruption(
    fs: FaultyFileSystem, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = filled(fs, clock)
    position = place(broker, "t", 7)
    path = rot(broker, fs, position + PAYLOAD)
    original = FaultyFile.forget

    def forget(self: FaultyFile, length: int, at: int) -> None:
        original(self, length, at)
        rot(broker, fs, position + PAYLOAD)  # read from the disk again, it is whole

    monkeypatch.setattr(FaultyFile, "forget", forget)
    scrub(broker, clock)
    assert path in fs.names
    assert broker.scrubber.corrupt == []


def test_segments_that_are_removed_meanwhile(fs: FaultyFileSystem, clock: VirtualClock) -> None:
    broker = filled(fs, clock)
    rot(broker, fs, place(broker, "t", 0) + PAYLOAD)
    rot(broker, fs, place(broker, "t", 29) + PAYLOAD)
    job = job_of(broker.scrubber, clock)
    assert job is not None
    removed = broker.log.segments[0].start, broker.log.segments[1].start
    partition = partition_of(broker, "t")
    for each in (partition, partition_of(broker, "t", 1)):
        each.move_start(16)
    broker.housekeeping.drop_segments()
    turn(broker)
    broker.housekeeping.drop_segments()
    turn(broker)
    assert broker.log.start > removed[1]
    assert not {segment_path(each) for each in removed} & fs.names.keys()
    run(job)
    scrub(broker, clock)
    assert [each.lost[0].low for each in broker.scrubber.corrupt] == [29], "what has expired is not told"
    del job
    broker.log.bury_zombies()
    turn(broker)
    assert not broker.log._zombies, "it holds no file"


def test_corruption_is_forgotten_with_its_segment(fs: FaultyFileSystem, clock: VirtualClock) -> None:
    broker = filled(fs, clock)
    rot(broker, fs, place(broker, "t", 0) + PAYLOAD)
    scrub(broker, clock)
    assert broker.health()
    for index in range(2):
        partition_of(broker, "t", index).move_start(16)
    for _ in range(2):
        broker.housekeeping.drop_segments()
        turn(broker)
    broker.housekeeping.turn()
    assert broker.health() == []


def test_a_compacted_segment_that_is_replaced_meanwhile(fs: FaultyFileSystem, clock: VirtualClock) -> None:
    broker = open_broker(fs, clock)
    broker.create_topic("t", 1, COMPACT)
    for number in range(200):
        put(broker, "t", (b"k%d" % (number % 50), b"v" * 900))
    clean(broker, clock)
    (segment,) = broker.log.cleaned
    while (job := job_of(broker.scrubber, clock)) is None or broker.scrubber._walk.position < segment.start:
        if job is not None:
            run(job)
    flip(fs, f"cleaned/{segment.start:020d}", 5_000, 30)
    for number in range(200):
        put(broker, "t", (b"k%d" % (number % 50), b"w" * 900))
    clean(broker, clock)
    clean(broker, clock)
    assert segment not in broker.log.cleaned
    run(job)
    scrub(broker, clock)
    assert [each for each in broker.scrubber.corrupt if each.low >= segment.start] == []


def test_a_log_that_has_failed_is_left_alone(fs: FaultyFileSystem, clock: VirtualClock) -> None:
    broker = filled(fs, clock)
    fs.fail_sync = True
    send(broker, "t", b"v")
    turn(broker)
    assert broker.log.failed
    clock.now_ms += 10 * QUIET_MS
    assert broker.scrubber.next_deadline() is None
    assert broker.scrubber.next_job() is None


# -- restarts ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_a_pass_goes_on_after_a_restart(fs: FaultyFileSystem, clock: VirtualClock, end: str) -> None:
    broker = filled(fs, clock)
    begun_ms = clock.now_ms + QUIET_MS
    while broker.scrubber._position < 3 * SEGMENT:
        job = job_of(broker.scrubber, clock)
        assert job is not None
        run(job)
    read = broker.scrubber.read_bytes
    if end == "stop":
        broker.close()
    else:
        fs = fs.kill()
    clock.now_ms += 3_600_000
    broker = open_broker(fs, clock)
    scrub(broker, clock)
    assert broker.scrubber.read_bytes < broker.log.end - read + 2 * SEGMENT
    due_ms = broker.scrubber.next_deadline()
    assert due_ms == begun_ms + 7 * DAY_MS


def test_what_was_found_is_known_after_a_restart_and_looked_at_again(
    fs: FaultyFileSystem, clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    broker = filled(fs, clock)
    low, high = place(broker, "t", 7), place(broker, "t", 9)
    rot(broker, fs, low, high - low)
    scrub(broker, clock)
    problems = broker.health()
    broker.close()
    broker = open_broker(fs, clock)
    assert broker.health() == problems
    look_again(broker, clock)
    assert broker.health() == problems
    assert refused(broker, 7)
    assert len(said(caplog, "corruption_found")) == 2, "one for each partition, and none after the start"


@pytest.mark.parametrize("byte", [PAYLOAD, HEADER])
def test_a_file_that_was_brought_back_is_served_again(fs: FaultyFileSystem, clock: VirtualClock, byte: int) -> None:
    broker = filled(fs, clock)
    before = dict(read_all(broker, "t"))
    position = place(broker, "t", 7)
    path = rot(broker, fs, position + byte)
    scrub(broker, clock)
    assert refused(broker, 7)
    broker.close()
    assert notes.load(fs).corrupt
    flip(fs, path, position + byte - broker.log.segment_at(position).start)  # as a backup has it
    broker = open_broker(fs, clock)
    assert refused(broker, 7)
    look_again(broker, clock)
    assert broker.health() == []
    assert dict(read_all(broker, "t")) == before
    broker.close()
    assert notes.load(fs).corrupt == []
    broker = open_broker(fs, clock)
    assert dict(read_all(broker, "t")) == before


def test_a_note_that_cannot_be_read_says_nothing(fs: FaultyFileSystem, clock: VirtualClock) -> None:
    broker = filled(fs, clock)
    scrub(broker, clock)
    broker.close()
    flip(fs, notes.PATH, 0)
    broker = open_broker(fs, clock)
    assert broker.scrubber.ended_ms == 0
    scrub(broker, clock)
    assert broker.scrubber.ended_ms


def test_a_full_disk_costs_no_more_than_the_note(fs: FaultyFileSystem, clock: VirtualClock) -> None:
    broker = filled(fs, clock)
    rot(broker, fs, place(broker, "t", 7) + PAYLOAD)
    fs.free = 0
    scrub(broker, clock)
    assert len(broker.scrubber.corrupt) == 1
    assert broker.scrubber.problems() == broker.health()[-1:]


def test_while_it_is_off_nothing_is_read(fs: FaultyFileSystem, clock: VirtualClock) -> None:
    broker = open_broker(fs, clock, off=("scrubber",))
    assert all(each is not broker.scrubber for each in broker.kernel.features.background)
    assert all(each is not broker.scrubber for each in broker.kernel.features.timed)


@pytest.mark.parametrize("seed", range(15))
def test_any_rot_is_found_and_nothing_else(seed: int, clock: VirtualClock) -> None:
    """Against the places that were spoilt: each frame that was hit is found, and no other."""
    dice = random.Random(seed)
    fs = FaultyFileSystem(dice)
    broker = filled(fs, clock, batches=80, size=dice.choice((20, 700, 5_000)))
    frames = sorted((place(broker, "t", nth, index), index, nth) for index in range(2) for nth in range(40))
    hit = dice.sample(frames, dice.randrange(1, 6))
    for low, _, _ in hit:
        rot(broker, fs, dice.randrange(low, low + 92 + 61))
    scrub(broker, clock)
    lost = [each for stretch in broker.scrubber.corrupt for each in stretch.lost]
    found = {(each.partition, offset) for each in lost for offset in range(each.low, each.high)}
    assert found == {(index, nth) for _, index, nth in hit}
    for stretch in broker.scrubber.corrupt:
        assert any(stretch.low <= low < stretch.high for low, *_ in hit)
