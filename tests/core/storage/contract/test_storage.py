"""What every storage engine promises (core/storage/storage.py), without a broker on it."""

from __future__ import annotations

import errno
import os
import random
from contextlib import suppress

import pytest

from halfmoon.core.records.batch_header import stamp
from halfmoon.core.storage.frame import HEADER_BYTES, Kind
from halfmoon.core.storage.scan import Scan
from halfmoon.core.storage.storage import MakeStorage, Place, Storage
from halfmoon.errors import BrokerError, Fault, LeaseLostError, StorageError
from halfmoon.testing.faulty_files import FaultyFileSystem, ProcessDied
from tests.core.bench import batch
from tests.core.log_bench import SEGMENT, append_group, remove_retired
from tests.core.storage.contract.engines import bring, insist, opened, read


def put(storage: Storage, offset: int, value: bytes = b"value") -> Place:
    """Append a batch of one partition; where it is going to stand."""
    data = batch(value)
    stamp(data, offset, storage.log.generation)
    position = storage.log.append(Kind.BATCH, 1, 0, 1, offset, 1, 1, 0, data)
    return position, len(data)


def commit(storage: Storage) -> None:
    storage.log.write()
    job = storage.log.sync_job()
    if job is not None:
        job.run()
        storage.log.finish_sync(job, None)


def filled(storage: Storage, count: int, size: int = 1_000) -> list[tuple[Place, bytes]]:
    """Durable batches: where each stands, and some bytes that are in it and in no other."""
    rows = []
    for offset in range(count):
        value = b"%06d" % offset + b"v" * size
        rows.append((put(storage, offset, value), value))
    commit(storage)
    return rows


def test_the_ends_move_in_their_order(make: MakeStorage, fs: FaultyFileSystem) -> None:
    log = (storage := opened(make, fs)).log
    assert log.start == log.flushed == log.written == log.end == log.pending_bytes == 0
    put(storage, 0)
    end = log.end
    assert (log.written, log.flushed, log.pending_bytes) == (0, 0, end)
    log.write()
    assert (log.written, log.flushed, log.pending_bytes) == (end, 0, 0)
    job = log.sync_job()
    assert job is not None
    assert job.target == end
    put(storage, 1)  # comes while the commit is under way
    log.write()
    job.run()
    log.finish_sync(job, None)
    assert log.flushed == end < log.written == log.end
    commit(storage)
    assert log.flushed == log.end
    assert log.sync_job() is None


def test_what_was_written_is_read_in_the_order_it_is_asked_for(make: MakeStorage, fs: FaultyFileSystem) -> None:
    storage = opened(make, fs, hot_bytes=0)
    rows = filled(storage, 200)
    assert len(storage.log.segments) > 2
    for wanted in ([0], [0, 1, 2], [5, 150], list(range(200)), [180, 3]):
        pieces = read(storage, [rows[at][0] for at in wanted])
        assert [rows[at][1] in piece for at, piece in zip(wanted, pieces, strict=True)] == [True] * len(wanted)
        assert [len(piece) for piece in pieces] == [rows[at][0][1] for at in wanted]
    assert read(storage, []) == []


def test_a_load_may_be_run_again(make: MakeStorage, fs: FaultyFileSystem) -> None:
    storage = opened(make, fs)
    rows = filled(storage, 3)
    load = storage.reader.load([place for place, _ in rows])
    first, again = ([bytes(piece) for piece in insist(load)] for _ in range(2))
    assert first == again
    assert all(value in piece for (_, value), piece in zip(rows, first, strict=True))


def test_frames_are_found_by_their_position_and_by_their_payload(make: MakeStorage, fs: FaultyFileSystem) -> None:
    storage = opened(make, fs)
    rows = filled(storage, 100)
    frames = storage.reader.frames()
    for (position, length), value in rows:
        whole = insist(lambda at=position: frames.before(at))  # type: ignore[misc]
        assert whole is not None
        assert value in bytes(whole.payload)
        assert len(whole.payload) == length
        same = insist(lambda at=whole.frame.position: frames.read(at))  # type: ignore[misc]
        assert same is not None
        assert same.frame == whole.frame
    assert insist(lambda: frames.read(rows[0][0][0] + 1)) is None
    assert insist(lambda: frames.before(1 << 40)) is None


def test_what_was_brought_may_be_scanned(make: MakeStorage, fs: FaultyFileSystem) -> None:
    """After a restart, when nothing of it is here."""
    filled(opened(make, fs), 150)
    storage = opened(make, fs, hot_bytes=0)
    seen = []
    for segment in storage.log.segments:
        guard = segment.view[:0]
        end = min(segment.end, storage.log.end)
        bring(storage, segment.start, end)
        scan = Scan([segment], segment.start, 0, end)
        seen += [frame.base_offset for frame, payload in scan.frames() if frame.kind == Kind.BATCH and payload]
        assert not scan.damaged
        guard.release()
    assert seen == list(range(150))


def test_a_frame_group_stands_in_one_segment(make: MakeStorage, fs: FaultyFileSystem) -> None:
    storage = opened(make, fs)
    log = storage.log
    while not log.segments or log.segments[-1].end - log.end > 9_000:
        put(storage, 0, b"x" * 4_000)
    before = len(log.segments)
    payloads = [b"p" * 3_000] * 4
    log.reserve(sum(map(len, payloads)) + 4 * HEADER_BYTES, 0)
    first = append_group(log, *payloads)  # type: ignore[arg-type]
    commit(storage)
    assert len(log.segments) == before + 1
    assert first >= log.segments[-1].start
    frames = storage.reader.frames()
    at = first
    for part in range(4):
        whole = insist(lambda at=at: frames.read(at))  # type: ignore[misc]
        assert whole is not None
        assert (whole.frame.part, whole.frame.parts) == (part, 4)
        at = whole.frame.end


def test_each_segment_begins_with_its_head(make: MakeStorage, fs: FaultyFileSystem) -> None:
    storage = opened(make, fs)
    rolled: list[int] = []
    storage.log.head = lambda start: [b"head at %d" % start]
    storage.log.on_roll = rolled.append
    filled(storage, 200)
    assert rolled == [segment.start for segment in storage.log.segments]
    frames = storage.reader.frames()
    for start in rolled:
        whole = insist(lambda at=start: frames.read(at))  # type: ignore[misc]
        assert whole is not None
        assert bytes(whole.payload) == b"head at %d" % start


def test_a_commit_that_fails_ends_writing_and_not_reading(make: MakeStorage, fs: FaultyFileSystem) -> None:
    storage = opened(make, fs)
    rows = filled(storage, 5)
    put(storage, 5)
    storage.log.write()
    job = storage.log.sync_job()
    fs.fail_sync = True
    assert job is not None
    with pytest.raises(OSError, match=os.strerror(errno.EIO)) as raised:
        job.run()
    storage.log.finish_sync(job, raised.value)
    assert storage.log.failed is raised.value
    assert storage.log.sync_job() is None
    with pytest.raises(BrokerError) as refused:
        put(storage, 6)
    assert refused.value.fault is Fault.KAFKA_STORAGE_ERROR
    assert all(value in piece for (_, value), piece in zip(rows, read(storage, [p for p, _ in rows]), strict=True))


def test_a_write_that_fails_ends_writing(make: MakeStorage, fs: FaultyFileSystem) -> None:
    storage = opened(make, fs)
    filled(storage, 1)
    put(storage, 1)
    fs.fail_write = True
    with pytest.raises(StorageError):
        storage.log.write()
    assert storage.log.failed is not None
    assert storage.log.written < storage.log.end


def test_a_lost_lease_is_told_from_a_broken_disk(make: MakeStorage, fs: FaultyFileSystem) -> None:
    storage = opened(make, fs)
    put(storage, 0)
    storage.log.write()
    job = storage.log.sync_job()
    assert job is not None
    storage.log.finish_sync(job, LeaseLostError("epoch 8 has it"))
    assert isinstance(storage.log.failed, LeaseLostError)


def test_a_full_disk_is_met_before_anything_was_promised(make: MakeStorage, fs: FaultyFileSystem) -> None:
    storage = opened(make, fs)
    rows = filled(storage, 10)
    fs.free = 0
    end = storage.log.end
    with pytest.raises(BrokerError) as refused:
        storage.log.reserve(SEGMENT, 0)
    assert refused.value.fault is Fault.KAFKA_STORAGE_ERROR
    assert storage.log.low_disk
    assert storage.log.end == end
    assert storage.log.failed is None
    assert rows[0][1] in read(storage, [rows[0][0]])[0]
    fs.free = 1 << 40
    assert storage.log.has_room()


def test_what_was_dropped_cannot_be_asked_for_and_slices_outlive_it(make: MakeStorage, fs: FaultyFileSystem) -> None:
    storage = opened(make, fs)
    rows = filled(storage, 200)
    first = rows[0]
    slices = insist(storage.reader.load([first[0]]))
    load = storage.reader.load([first[0]])
    frames = storage.reader.frames()
    storage.log.remove_oldest()
    remove_retired(storage.log)  # type: ignore[arg-type]
    assert storage.log.start == storage.log.segments[0].start > 0
    with pytest.raises(BrokerError) as refused:
        storage.reader.read([first[0]])
    assert refused.value.fault is Fault.OFFSET_OUT_OF_RANGE
    assert first[1] in bytes(slices[0])
    assert first[1] in bytes(insist(load)[0])  # asked for before
    whole = insist(lambda: frames.before(first[0][0]))
    assert whole is not None
    assert first[1] in bytes(whole.payload)
    assert rows[-1][1] in read(storage, [rows[-1][0]])[0]


def test_generations_grow_and_nobody_gets_one_twice(make: MakeStorage, fs: FaultyFileSystem) -> None:
    given = []
    for _ in range(3):
        storage = opened(make, fs)
        put(storage, 0)
        commit(storage)
        given.append(storage.log.generation)
    assert given == sorted(set(given))


@pytest.mark.parametrize("end", ["stop", "kill", "power_loss"])
def test_what_is_durable_is_there_after_a_start(make: MakeStorage, fs: FaultyFileSystem, end: str) -> None:
    storage = opened(make, fs)
    rows = filled(storage, 120)
    lost = put(storage, 120, b"not durable")
    if end != "kill":
        assert storage.log.flushed < lost[0]
    if end == "stop":
        commit(storage)
        storage.log.close()
    again = opened(make, fs if end == "stop" else getattr(fs, end)(), hot_bytes=0)
    assert again.log.end >= rows[-1][0][0] + rows[-1][0][1]
    pieces = read(again, [place for place, _ in rows])
    assert all(value in piece for (_, value), piece in zip(rows, pieces, strict=True))
    put(again, 120, b"goes on")
    commit(again)
    assert again.log.flushed == again.log.end


@pytest.mark.parametrize("seed", range(8))
def test_a_power_cut_at_any_operation_loses_nothing_durable(make: MakeStorage, seed: int) -> None:
    dice = random.Random(seed)
    fs = FaultyFileSystem(random.Random(seed))
    storage = opened(make, fs)
    durable: list[tuple[Place, bytes]] = []
    fs.crash_at = fs.operations + dice.randrange(1, 60)
    with suppress(ProcessDied):
        for offset in range(10_000):
            value = b"%06d" % offset + b"v" * dice.randrange(3_000)
            place = put(storage, offset, value)
            commit(storage)
            durable.append((place, value))
    assert fs.dead
    again = opened(make, fs.power_loss())
    pieces = read(again, [place for place, _ in durable])
    assert all(value in piece for (_, value), piece in zip(durable, pieces, strict=True))
