"""Starts: from a clean stop, from torn tails, from lost and damaged files, from disks that rot."""

from __future__ import annotations

import logging
import random
import struct

import pytest

from halfmoon.core.storage import frame as frames
from halfmoon.core.storage import scan as scans
from halfmoon.core.storage.files import read_file
from halfmoon.core.storage.log_files import segment_path
from halfmoon.errors import BrokerError, Fault, StartError
from halfmoon.testing.faulty_files import FaultyFileSystem
from halfmoon.testing.node import BareNode
from tests.core.bench import VirtualClock, flip, jobs, open_broker, partition_of, read_all, send, sync, turn, values


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL + 1, "halfmoon.broker")


@pytest.fixture
def fs() -> FaultyFileSystem:
    return FaultyFileSystem(random.Random(7))


def started(fs: FaultyFileSystem, clock: VirtualClock, *topics: str, partitions: int = 1) -> BareNode:
    broker = open_broker(fs, clock)
    for topic in topics:
        broker.create_topic(topic, partitions)
    turn(broker)
    return broker


def frame_at(broker: BareNode, position: int) -> frames.Frame:
    segment = broker.log.segment_at(position)
    return frames.decode(segment.view, position, segment.start)


def places(broker: BareNode, topic: str, index: int = 0) -> list[int]:
    """Log positions of the frames of a partition's batches."""
    queue = partition_of(broker, topic, index).queue
    found = [(run.columns.position[row]) for run in queue.runs() for row in range(run.low, run.high)]
    return [position - frames.HEADER_BYTES for position in found]


def rot(broker: BareNode, fs: FaultyFileSystem, position: int, count: int = 1) -> None:
    segment = broker.log.segment_at(position)
    flip(fs, segment_path(segment.start), position - segment.start, count)


# -- a clean stop ------------------------------------------------------------------------------------------------------


def test_a_clean_stop_is_recognised_and_nothing_is_scanned(
    fs: FaultyFileSystem, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = started(fs, clock, "t")
    for number in range(200):
        send(broker, "t", b"x" * 900, b"%d" % number)
    turn(broker)
    before = values(broker, "t")
    broker.close()
    read = []
    original = scans.read_header

    def counted(*args: object) -> frames.Frame:
        read.append(args)
        return original(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(scans, "read_header", counted)
    again = fs.kill()
    broker = open_broker(again, clock)
    assert not read
    assert broker.report.clean
    assert broker.report.frames == broker.report.indexed_again == broker.report.torn_bytes == 0
    assert values(broker, "t") == before


def test_the_clean_mark_is_gone_before_anything_is_appended(fs: FaultyFileSystem, clock: VirtualClock) -> None:
    started(fs, clock, "t").close()
    assert read_file(fs, "clean") is not None
    broker = open_broker(fs, clock)
    assert read_file(fs.power_loss(), "clean") is None
    send(broker, "t", b"after")
    turn(broker)
    again = open_broker(fs.kill(), clock)
    assert not again.report.clean
    assert values(again, "t") == [b"after"]


def test_an_old_clean_mark_means_nothing_for_another_position(fs: FaultyFileSystem, clock: VirtualClock) -> None:
    started(fs, clock, "t").close()
    mark = read_file(fs, "clean")
    assert mark is not None
    broker = open_broker(fs, clock)
    send(broker, "t", b"after")
    turn(broker)
    fs.open("clean", create=True).pwritev([mark], 0)
    fs.remove("checkpoint")
    again = open_broker(fs.kill(), clock)
    assert not again.report.clean
    assert values(again, "t") == [b"after"]


def test_every_start_is_a_new_generation(fs: FaultyFileSystem, clock: VirtualClock) -> None:
    seen = []
    for _ in range(4):
        broker = open_broker(fs, clock)
        seen.append(broker.generation)
        fs = fs.kill()
        broker = open_broker(fs, clock)
        seen.append(broker.generation)
        broker.close()
        fs = fs.power_loss()
    assert seen == sorted(set(seen))


# -- torn tails --------------------------------------------------------------------------------------------------------


def test_a_tail_torn_at_any_byte_of_the_last_frame_is_cut_there(fs: FaultyFileSystem, clock: VirtualClock) -> None:
    broker = started(fs, clock, "t")
    send(broker, "t", b"kept")
    turn(broker)
    begin = broker.log.end
    send(broker, "t", b"torn")
    broker.write()
    end = broker.log.end
    whole = bytes(fs.names[segment_path(0)].cache[begin:end])
    for at in range(len(whole.rstrip(b"\0"))):
        torn = fs.kill()
        torn.names[segment_path(0)].cache[begin + at : end] = bytes(len(whole) - at)
        again = open_broker(torn, clock)
        assert values(again, "t") == [b"kept"], at
        assert again.report.end == begin
        assert not again.report.damaged
        assert not again.health()
        assert (again.report.torn_bytes > 0) == (at >= frames.HEADER_BYTES)
        send(again, "t", b"next")
        turn(again)
        assert read_all(again, "t") == [(0, b"kept"), (1, b"next")]


def test_stale_bytes_behind_a_torn_frame_are_never_taken_for_frames(fs: FaultyFileSystem, clock: VirtualClock) -> None:
    """The torn frame is overwritten by one of the same length, so that old whole frames stand right behind it."""
    broker = started(fs, clock, "t")
    started_at = broker.log.end
    for number in range(5):
        send(broker, "t", b"old-%d" % number)
    broker.write()
    fs = fs.kill()
    flip(fs, segment_path(0), started_at + 100)
    broker = open_broker(fs, clock)
    # The new generation's own frame, then a batch: lengths chosen so that they end where an old frame begins.
    old_frame = frames.HEADER_BYTES + 61 + len(b"old-0") + 7
    boundaries = {started_at + n * old_frame for n in range(6)}
    for size in range(1, 400):
        probe = broker.log.end + frames.HEADER_BYTES + 61 + 7 + size
        if probe in boundaries:
            break
    send(broker, "t", b"n" * size)
    turn(broker)
    again = open_broker(fs.power_loss(), clock)
    assert values(again, "t") == [b"n" * size]
    assert not again.report.damaged


def test_a_torn_snapshot_at_the_head_of_a_segment_counts_as_a_whole_or_not_at_all(
    fs: FaultyFileSystem, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("halfmoon.core.catalog.snapshot.PART_BYTES", 100)
    broker = started(fs, clock, "t", "u", partitions=20)
    while len(broker.log.segments) == 1:
        synced = broker.log.end
        sync(broker)
        send(broker, "t", b"x" * 20_000)
        broker.write()
    head = broker.log.segments[1].start
    first = frame_at(broker, head)
    assert first.parts > 2
    for part in range(first.parts):
        position = head
        for _ in range(part):
            position = frame_at(broker, position).end
        torn = fs.kill()
        torn.remove("checkpoint") if "checkpoint" in torn.names else None
        flip(torn, segment_path(head), position - head + 100)
        again = open_broker(torn, clock)
        assert not again.report.damaged
        assert again.report.end <= head
        assert again.report.end >= synced
        assert {topic.name for topic in again.topics()} == {"t", "u"}


def test_a_snapshot_larger_than_a_part_and_than_a_segment_is_read_back(
    fs: FaultyFileSystem, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("halfmoon.core.catalog.snapshot.PART_BYTES", 16 << 10)
    broker = started(fs, clock)
    for number in range(40):
        broker.create_topic(f"topic-{number}", 250)
        turn(broker)
    for _ in range(6):
        send(broker, "topic-3", b"x" * 100_000, index=7)
        turn(broker)
    assert max(segment.size for segment in broker.log.segments) > (64 << 10) + 100_000
    assert frame_at(broker, broker.log.segments[-1].start).parts > 2
    fs = fs.kill()
    fs.remove("checkpoint") if "checkpoint" in fs.names else None
    again = open_broker(fs, clock)
    assert len(again.topics()) == 40
    assert sum(len(topic.partitions) for topic in again.topics()) == 10_000
    assert len(values(again, "topic-3", 7)) == 6


@pytest.mark.parametrize("synced", [True, False])
def test_stale_frames_of_a_recycled_segment_are_never_served(
    fs: FaultyFileSystem, clock: VirtualClock, synced: bool
) -> None:
    """Power is lost right after a recycled segment became active. While its new name is not `synced`, it is not
    used."""
    broker = started(fs, clock, "t")
    for number in range(30):
        send(broker, "t", b"%d-" % number + b"x" * 9_000)
        turn(broker)
    clock.now_ms += 8 * 86_400_000
    while not broker.housekeeping.retain():
        pass
    turn(broker)
    broker.housekeeping.drop_segments()
    jobs(broker)
    recycled = [path for path in fs.names if path == "log/spare"]
    assert recycled, "nothing was recycled"
    if synced:
        send(broker, "t", b"new")
        turn(broker)
    kept = read_all(broker, "t")
    segments = len(broker.log.segments)
    while len(broker.log.segments) == segments:
        sent = send(broker, "t", b"new" + b"y" * 9_000)
    assert ("log/spare" not in fs.names) == synced
    broker.write()
    for seed in range(30):
        fs.dice.seed(seed)
        lost = fs.kill()
        again = open_broker(lost.power_loss(), clock)
        found = read_all(again, "t")
        assert found[: len(kept)] == kept
        assert all(value.startswith(b"new") for _, value in found[len(kept) :])
        assert [at for at, _ in found] == list(range(found[0][0], found[-1][0] + 1)) if found else True
        assert found[-1][0] <= sent.base_offset if found else True
        assert not again.report.damaged


def test_every_segment_has_a_head_even_after_a_cut_right_at_its_beginning(
    fs: FaultyFileSystem, clock: VirtualClock
) -> None:
    """Without it, all topics would be gone with the segment before."""
    broker = started(fs, clock, "t")
    while len(broker.log.segments) == 1:
        send(broker, "t", b"x" * 9_000)
        turn(broker)
    boundary = broker.log.segments[1].start
    fs = fs.kill()
    for path in [path for path in fs.names if path in ("checkpoint", "clean") or path.startswith("index/")]:
        fs.remove(path)
    fs.names[segment_path(boundary)].cache[:] = bytes(len(fs.names[segment_path(boundary)].cache))
    again = open_broker(fs, clock)
    assert again.report.end == boundary
    assert frame_at(again, boundary).kind == frames.Kind.CONTROL
    for number in range(12):
        send(again, "t", b"later-%d" % number + b"x" * 9_000)
        turn(again)
    again.delete_records(partition_of(again, "t"), partition_of(again, "t").high_watermark - 2)
    turn(again)
    again.housekeeping.drop_segments()
    turn(again)
    assert again.log.start >= boundary
    kept = read_all(again, "t")
    fs = fs.kill()
    fs.remove("checkpoint") if "checkpoint" in fs.names else None
    assert read_all(open_broker(fs, clock), "t") == kept


# -- rot ---------------------------------------------------------------------------------------------------------------


def reopened_after_rot(
    fs: FaultyFileSystem, clock: VirtualClock, *, lose: tuple[str, ...] = ("checkpoint",)
) -> BareNode:
    fs = fs.kill()
    for path in list(fs.names):
        if path.startswith(lose):
            fs.remove(path)
    broker = open_broker(fs, clock)
    assert broker.report.damaged
    assert broker.health()
    return broker


def assert_lost(broker: BareNode, topic: str, low: int, high: int, index: int = 0) -> None:
    """Offsets [low, high) answer CORRUPT_MESSAGE, and a read from before them ends there."""
    partition = partition_of(broker, topic, index)
    assert partition.queue.damaged == [(low, high)]
    for offset in range(low, high):
        with pytest.raises(BrokerError) as caught:
            broker.read(partition, offset, 1 << 20, min_one=True)
        assert caught.value.fault is Fault.CORRUPT_MESSAGE
    if low > partition.start_offset:
        for offset in range(partition.start_offset, low):
            read = broker.read(partition, offset, 1 << 20, min_one=True)
            last = read.slices[-1]
            assert struct.unpack_from(">q", last)[0] < low
    else:
        assert partition.high_watermark >= high


@pytest.mark.parametrize("where", ["active", "sealed"])
@pytest.mark.parametrize("what", ["payload", "header"])
def test_rot_in_a_batch(fs: FaultyFileSystem, clock: VirtualClock, where: str, what: str) -> None:
    broker = started(fs, clock, "t", "u")
    for number in range(20):
        send(broker, "t", b"t%d" % number + b"x" * (9_000 if where == "sealed" else 10), b"second")
        send(broker, "u", b"u%d" % number)
        turn(broker)
    before_t, before_u = read_all(broker, "t"), read_all(broker, "u")
    position = places(broker, "t")[3]
    assert broker.log.segment_at(position) is (broker.log.segments[-1 if where == "active" else 0])
    end = broker.log.end
    position_after = frame_at(broker, position).end
    rot(broker, fs, position + (30 if what == "header" else 140))
    lose = ("checkpoint",) if where == "active" else ("checkpoint", "index/")
    again = reopened_after_rot(fs, clock, lose=lose)
    assert again.report.damaged == [(position, position_after)]
    assert again.report.end == end, "nothing is cut"
    assert_lost(again, "t", 6, 8)
    assert read_all(again, "t") == [entry for entry in before_t if entry[0] not in (6, 7)]
    assert read_all(again, "u") == before_u
    assert any("t-0" in line for line in again.health())
    # It stays so after the next start, which need not look there any more.
    send(again, "t", b"later")
    turn(again)
    again.close()
    third = open_broker(again.fs.kill(), clock)  # type: ignore[attr-defined]
    assert_lost(third, "t", 6, 8)
    assert third.health()
    assert read_all(third, "t")[-1] == (40, b"later")


def test_rot_in_the_last_batch_of_a_partition_does_not_give_its_offsets_out_again(
    fs: FaultyFileSystem, clock: VirtualClock
) -> None:
    broker = started(fs, clock, "t", "u")
    send(broker, "t", b"a", b"b")
    send(broker, "t", b"c", b"d")
    turn(broker)
    send(broker, "u", b"x")  # says that what is before it was flushed
    turn(broker)
    rot(broker, fs, places(broker, "t")[1] + 150)
    again = reopened_after_rot(fs, clock)
    assert_lost(again, "t", 2, 4)
    assert send(again, "t", b"e").base_offset == 4
    turn(again)
    assert read_all(again, "t") == [(0, b"a"), (1, b"b"), (4, b"e")]


def test_deleting_what_is_lost_makes_health_green_again(fs: FaultyFileSystem, clock: VirtualClock) -> None:
    broker = started(fs, clock, "t")
    for number in range(4):
        send(broker, "t", b"%d" % number)
        turn(broker)
    rot(broker, fs, places(broker, "t")[1] + 150)
    again = reopened_after_rot(fs, clock)
    again.delete_records(partition_of(again, "t"), 2)
    turn(again)
    again.close()
    third = open_broker(again.fs.kill(), clock)  # type: ignore[attr-defined]
    assert third.health() == []
    assert read_all(third, "t") == [(2, b"2"), (3, b"3")]


def test_rot_in_the_record_of_a_topics_creation_leaves_its_messages_readable(
    fs: FaultyFileSystem, clock: VirtualClock
) -> None:
    broker = started(fs, clock, "first")
    position = broker.log.end
    broker.create_topic("lost", 2)
    send(broker, "lost", b"a", index=1)
    broker.create_topic("third", 1)
    turn(broker)
    send(broker, "lost", b"b", index=1)
    send(broker, "third", b"c")
    turn(broker)
    rot(broker, fs, position + frames.HEADER_BYTES + 3)
    again = reopened_after_rot(fs, clock)
    assert [topic.name for topic in again.topics()] == ["first", "halfmoon.lost-topic-1", "third"]
    assert values(again, "halfmoon.lost-topic-1", 1) == [b"a", b"b"]
    assert values(again, "third") == [b"c"]
    again.create_topic("fourth", 1)
    assert again.topic("fourth").number == 3  # type: ignore[union-attr]
    # The next segment's head would have said the name; here it says the made-up one, and that is stable.
    turn(again)
    again = open_broker(fs_of(again).kill(), clock)
    assert values(again, "halfmoon.lost-topic-1", 1) == [b"a", b"b"]


def fs_of(broker: BareNode) -> FaultyFileSystem:
    assert isinstance(broker.fs, FaultyFileSystem)
    return broker.fs


def test_the_next_segments_head_sets_right_what_lost_control_records_said(
    fs: FaultyFileSystem, clock: VirtualClock
) -> None:
    broker = started(fs, clock, "first", "doomed")
    send(broker, "doomed", b"gone")
    turn(broker)
    position = broker.log.end
    broker.create_topic("lost", 2)
    broker.delete_topic(broker.topic("doomed"))  # type: ignore[arg-type]
    broker.add_partitions(broker.topic("first"), 3)  # type: ignore[arg-type]
    broker.groups.commit("g", -1, "", None, [(partition_of(broker, "first"), 5, -1, "note")])
    end = broker.log.end
    turn(broker)
    send(broker, "lost", b"a", index=1)
    send(broker, "first", b"b", index=2)
    turn(broker)
    while len(broker.log.segments) == 1:
        send(broker, "first", b"x" * 9_000)
        turn(broker)
    send(broker, "first", b"after")
    turn(broker)
    rot(broker, fs, position + 10, end - position - 20)
    fs = fs.kill()
    for path in list(fs.names):
        if path == "checkpoint" or path.startswith("index/"):
            fs.remove(path)
    again = open_broker(fs, clock)
    assert again.report.damaged == [(position, end)]
    assert [topic.name for topic in again.topics()] == ["first", "lost"]
    assert len(again.topic("first").partitions) == 3  # type: ignore[union-attr]
    assert values(again, "lost", 1) == [b"a"]
    assert values(again, "first", 2) == [b"b"]
    assert values(again, "first")[-1] == b"after"
    assert again.groups.offsets("g")[partition_of(again, "first")].offset == 5


def test_rot_that_takes_a_segments_head_does_not_mix_up_the_segments(fs: FaultyFileSystem, clock: VirtualClock) -> None:
    broker = started(fs, clock, "t")
    while len(broker.log.segments) < 4:
        send(broker, "t", b"x" * 9_000)
        turn(broker)
    before = read_all(broker, "t")
    second = broker.log.segments[1].start
    rot(broker, fs, second, 100)
    again = reopened_after_rot(fs, clock, lose=("checkpoint", "index/"))
    assert read_all(again, "t") == before
    for file in again.housekeeping.indexes.files:
        assert again.log.segment_at(file.start) is again.log.segment_at(file.end - 1)
    # Retention can still drop what it took.
    clock.now_ms += 8 * 86_400_000
    turn(again)
    while not again.housekeeping.retain():
        pass
    turn(again)
    again.housekeeping.drop_segments()
    turn(again)
    assert again.log.start > second


def test_rot_at_the_end_of_what_was_indexed_is_no_torn_tail(fs: FaultyFileSystem, clock: VirtualClock) -> None:
    """No frame behind it says that it was flushed; the index file does."""
    broker = started(fs, clock, "t")
    send(broker, "t", b"a")
    turn(broker)
    send(broker, "t", b"b")
    turn(broker)
    broker.close()
    assert fs.names["clean"].cache != b""
    rot(broker, fs, broker.log.end - 3)
    again = reopened_after_rot(fs, clock, lose=("checkpoint", "clean"))
    assert_lost(again, "t", 1, 2)
    assert again.report.end == broker.log.end


# -- lost and damaged files --------------------------------------------------------------------------------------------


def many_segments(fs: FaultyFileSystem, clock: VirtualClock) -> BareNode:
    broker = started(fs, clock, "t", "u", partitions=2)
    for number in range(40):
        clock.now_ms += 11_000
        send(broker, "t", b"%d" % number + b"x" * 5_000, index=number % 2)
        send(broker, "u", b"%d" % number)
        turn(broker)
    return broker


@pytest.mark.parametrize("lose", [(), ("checkpoint",), ("index/",), ("checkpoint", "index/")])
def test_what_is_derived_may_be_lost(fs: FaultyFileSystem, clock: VirtualClock, lose: tuple[str, ...]) -> None:
    broker = many_segments(fs, clock)
    before = read_all(broker, "t", 0), read_all(broker, "t", 1), read_all(broker, "u")
    fs = fs.kill()
    for path in list(fs.names):
        if lose and path.startswith(lose):
            fs.remove(path)
    again = open_broker(fs, clock)
    assert (read_all(again, "t", 0), read_all(again, "t", 1), read_all(again, "u")) == before
    if not lose:
        assert again.report.indexed_again == 0
    # The next start finds everything again.
    again.close()
    third = open_broker(fs.kill(), clock)
    assert third.report.clean
    assert third.report.indexed_again == 0


@pytest.mark.parametrize("at", [0, 4, 20, 60])
def test_a_damaged_index_file_is_made_again(fs: FaultyFileSystem, clock: VirtualClock, at: int) -> None:
    broker = many_segments(fs, clock)
    before = read_all(broker, "t", 0)
    path = next(path for path in sorted(fs.names) if path.startswith("index/"))
    flip(fs, path, at)
    again = open_broker(fs.kill(), clock)
    assert again.report.indexed_again > 0
    assert read_all(again, "t", 0) == before
    assert again.health() == []


def test_an_index_file_cut_short_is_made_again(fs: FaultyFileSystem, clock: VirtualClock) -> None:
    broker = many_segments(fs, clock)
    before = read_all(broker, "t", 0)
    fs = fs.kill()
    path = next(path for path in sorted(fs.names) if path.startswith("index/"))
    del fs.names[path].cache[-8:]
    again = open_broker(fs, clock)
    assert read_all(again, "t", 0) == before


@pytest.mark.parametrize("at", [0, 5, 9, 40])
def test_a_damaged_checkpoint_counts_as_lost(fs: FaultyFileSystem, clock: VirtualClock, at: int) -> None:
    broker = many_segments(fs, clock)
    before = read_all(broker, "t", 0)
    assert "checkpoint" in fs.names
    flip(fs, "checkpoint", at)
    again = open_broker(fs.kill(), clock)
    assert read_all(again, "t", 0) == before
    assert again.health() == []


def test_an_interrupted_merge_is_no_harm(fs: FaultyFileSystem, clock: VirtualClock) -> None:
    broker = started(fs, clock, "t")
    while len(broker.log.segments) < 2:
        send(broker, "t", b"x" * 9_000)
        broker.write()
        sync(broker)
        broker.housekeeping.plan()
    indexes = broker.housekeeping.indexes
    while (job := broker.housekeeping.next_job()) is not None and job.name != "merging indexes":
        job.done(job.run())
    assert job is not None
    merged = job.run()  # and the process dies before its sources are removed
    before = read_all(broker, "t")
    again = open_broker(fs.kill(), clock)
    assert read_all(again, "t") == before
    assert merged.path in {file.path for file in again.housekeeping.indexes.files}  # type: ignore[attr-defined]
    assert len(indexes.files) > len(again.housekeeping.indexes.files)


@pytest.mark.parametrize("stop", ["clean", "killed"])
@pytest.mark.parametrize("how", ["gone", "cut", "cut by a little", "empty"])
@pytest.mark.parametrize("which", ["first", "middle", "last"])
@pytest.mark.parametrize("lose", [(), ("checkpoint",)], ids=["with checkpoint", "without"])
def test_missing_files_are_treated_like_rot(
    fs: FaultyFileSystem, clock: VirtualClock, stop: str, how: str, which: str, lose: tuple[str, ...]
) -> None:
    broker = many_segments(fs, clock)
    before = {index: dict(read_all(broker, "t", index)) for index in range(2)}
    ends = [partition_of(broker, "t", index).next_offset for index in range(2)]
    if stop == "clean":
        broker.close()
    else:
        broker.log.close()
    segments = broker.log.segments
    at = {"first": 0, "middle": len(segments) // 2, "last": len(segments) - 1}[which]
    path = segment_path(segments[at].start)
    size = {"gone": 0, "cut": segments[at].size // 2, "cut by a little": segments[at].size - 10, "empty": 0}[how]
    if how == "gone":
        fs.remove(path)
    else:
        inode = fs.names[path]
        inode.cache, inode.disk = inode.cache[:size], inode.disk[:size]
        inode.dirty.clear()
    for name in [name for name in fs.names if name in lose]:
        fs.remove(name)
    fs = fs.kill()
    again = open_broker(fs, clock)
    cut_tail = which == "last" and size > 100  # the rest of it is not missed, if what was written ends before
    if not cut_tail:
        assert again.report.missing
        assert any("missing or cut short" in line for line in again.health())
    lost = 0
    for index, records in before.items():
        partition = partition_of(again, "t", index)
        left = dict(read_all(again, "t", index))
        damaged = {offset for low, high in partition.queue.damaged for offset in range(low, high)}
        for offset, value in records.items():
            if offset in damaged:
                with pytest.raises(BrokerError) as caught:
                    again.read(partition, offset, 1 << 20, min_one=True)
                assert caught.value.fault is Fault.CORRUPT_MESSAGE
                lost += 1
            elif not (which == "last" and offset >= partition.next_offset):
                assert left.get(offset) == value, (index, offset, damaged)
        if which != "last" or stop == "clean":  # else nothing that is left knows of the last batches
            assert partition.next_offset >= ends[index], "no offset is given out twice"
    if not cut_tail and not (which == "last" and lose) and how != "cut by a little":
        assert lost
    # It goes on, and the next start says the same.
    offset = send(again, "t", b"later").base_offset
    turn(again)
    known = {index: partition_of(again, "t", index).queue.damaged for index in range(2)}
    third = open_broker(fs.kill(), clock)
    assert {index: partition_of(third, "t", index).queue.damaged for index in range(2)} == known
    assert dict(read_all(third, "t"))[offset] == b"later"


def test_a_missing_head_is_noticed_and_an_expired_one_is_none(fs: FaultyFileSystem, clock: VirtualClock) -> None:
    """The floor is noted before a file of the log goes."""
    broker = many_segments(fs, clock)
    for topic in ("t", "u"):
        for index in range(2):
            partition = partition_of(broker, topic, index)
            broker.delete_records(partition, partition.next_offset // 2)
    turn(broker)
    while not broker.housekeeping.retain():
        pass
    turn(broker)
    broker.housekeeping.drop_segments()
    turn(broker)
    assert broker.log.start > 0
    assert open_broker(fs.kill(), clock).report.missing == []
    assert open_broker(fs.power_loss(), clock).report.missing == []
    after = fs.kill()
    start = broker.log.start
    after.remove(segment_path(start))
    again = open_broker(after, clock)
    assert again.report.missing == [(start, broker.log.segments[1].start)]


def test_a_gap_is_forgotten_when_it_expires(fs: FaultyFileSystem, clock: VirtualClock) -> None:
    broker = many_segments(fs, clock)
    broker.close()
    low, high = broker.log.segments[1].start, broker.log.segments[1].end
    fs.remove(segment_path(low))
    again = open_broker(fs.kill(), clock)
    assert again.kernel.gaps == [(low, high)]
    for topic in ("t", "u"):
        for index in range(2):
            partition = partition_of(again, topic, index)
            again.delete_records(partition, partition.next_offset)
    turn(again)
    for _ in range(2):
        again.housekeeping.drop_segments()
        turn(again)
    assert again.log.start >= high
    assert again.kernel.gaps == []
    assert again.health() == []


def test_a_floor_of_an_earlier_generation_is_not_believed(fs: FaultyFileSystem, clock: VirtualClock) -> None:
    """A version without it has removed segments since."""
    broker = many_segments(fs, clock)
    note = bytes(fs.names["bounds"].cache)
    broker.close()
    broker = open_broker(fs, clock)
    for topic in ("t", "u"):
        for index in range(2):
            partition = partition_of(broker, topic, index)
            broker.delete_records(partition, partition.next_offset // 2)
    turn(broker)
    while not broker.housekeeping.retain():
        pass
    turn(broker)
    broker.housekeeping.drop_segments()
    turn(broker)
    broker.close()
    fs.names["bounds"].cache[:] = note
    again = open_broker(fs.kill(), clock)
    assert (again.report.missing, again.report.damaged) == ([], [])


# -- versions ----------------------------------------------------------------------------------------------------------


def test_a_log_of_a_newer_version_is_refused_and_left_alone(
    fs: FaultyFileSystem, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as newer:
        newer.setattr(frames, "VERSION", 2)
        newer.setattr(frames, "READABLE_VERSIONS", frozenset({1, 2}))
        broker = started(fs, clock, "t")
        send(broker, "t", b"a")
        turn(broker)
        broker.write()
    fs = fs.kill()
    before = {path: bytes(inode.cache) for path, inode in fs.names.items() if path.startswith("log/")}
    with pytest.raises(StartError, match="newer version"):
        open_broker(fs, clock)
    assert before == {path: bytes(inode.cache) for path, inode in fs.names.items() if path.startswith("log/")}


def test_a_log_of_an_older_version_is_read(
    fs: FaultyFileSystem, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = started(fs, clock, "t")
    send(broker, "t", b"old")
    turn(broker)
    monkeypatch.setattr(frames, "VERSION", 2)
    monkeypatch.setattr(frames, "READABLE_VERSIONS", frozenset({1, 2}))
    fs = fs.kill()
    again = open_broker(fs, clock)
    send(again, "t", b"new")
    turn(again)
    third = open_broker(fs.kill(), clock)
    assert values(third, "t") == [b"old", b"new"]


def test_a_control_record_of_a_newer_version_is_refused(fs: FaultyFileSystem, clock: VirtualClock) -> None:
    broker = started(fs, clock, "t")
    payload = b"\x92\xa6future\x01"
    broker.log.append(
        frames.Kind.CONTROL, -1, -1, 0, 0, 0, 0, clock.wall_ms(), payload, payload_crc=frames.control_crc(payload)
    )
    turn(broker)
    with pytest.raises(StartError, match="does not know"):
        open_broker(fs.kill(), clock)


# -- what is not certain is written again ------------------------------------------------------------------------------


def test_the_tail_whose_fsync_failed_is_written_again(fs: FaultyFileSystem, clock: VirtualClock) -> None:
    """After a failed fsync the cache says one thing and the disk another, and the kernel believes both are the same."""
    broker = started(fs, clock, "t")
    send(broker, "t", b"perhaps")
    broker.write()
    fs.fail_sync = True
    sync(broker)
    assert broker.log.failed is not None
    fs.fail_sync = False
    survived = fs.kill()
    assert not survived.names[segment_path(0)].dirty, "the kernel thinks that there is nothing to write"
    again = open_broker(survived, clock)
    assert values(again, "t") == [b"perhaps"]
    after_power_loss = open_broker(survived.power_loss(), clock)
    assert values(after_power_loss, "t") == [b"perhaps"]


def test_a_place_that_the_disk_refuses_is_left_for_another(fs: FaultyFileSystem, clock: VirtualClock) -> None:
    broker = started(fs, clock, "t")
    send(broker, "t", b"kept")
    turn(broker)
    send(broker, "t", b"perhaps")
    broker.write()
    fs.spoil(segment_path(0))
    sync(broker)
    assert broker.log.failed is not None
    survived = fs.kill()
    again = open_broker(survived, clock)
    assert values(again, "t") == [b"kept", b"perhaps"]
    send(again, "t", b"next")
    turn(again)
    assert again.health() == []
    assert values(open_broker(survived.power_loss(), clock), "t") == [b"kept", b"perhaps", b"next"]


def test_a_start_on_a_full_disk_reads_and_indexes_later(fs: FaultyFileSystem, clock: VirtualClock) -> None:
    broker = started(fs, clock, "t")
    for _ in range(20):
        send(broker, "t", b"x" * 2_000)
        broker.write()
        sync(broker)
    before = read_all(broker, "t")
    fs = fs.kill()
    fs.free = 0
    again = open_broker(fs, clock)
    assert read_all(again, "t") == before
    turn(again)
    assert again.housekeeping.problems
    fs.free = 1 << 30
    again.housekeeping.turn()
    turn(again)
    assert not again.housekeeping.problems
    assert again.housekeeping.indexes.files
    assert read_all(again, "t") == before
