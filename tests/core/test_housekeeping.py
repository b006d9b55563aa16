"""Slow jobs, checkpoints, retention."""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable, Iterator

import pytest

from halfmoon.core import checkpoints
from halfmoon.core.catalog import snapshot
from halfmoon.core.retention import due_start
from halfmoon.core.storage.log_files import segment_path
from halfmoon.errors import BrokerError
from halfmoon.schema import control
from halfmoon.schema.control import Committed
from halfmoon.testing.faulty_files import FaultyFileSystem
from halfmoon.testing.node import BareNode
from tests.core.bench import SEGMENT, VirtualClock, jobs, open_broker, partition_of, read_all, send, sync, turn, values
from tests.slices import small_slices

DAY_MS = 86_400_000


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL + 1, "halfmoon.broker")


def retain(broker: BareNode) -> int:
    """One whole walk; returns in how many slices."""
    slices = 1
    while not broker.housekeeping.retain():
        slices += 1
    turn(broker)
    broker.housekeeping.drop_segments()
    turn(broker)
    return slices


def fill(broker: BareNode, topic: str, segments: int, size: int = 9_000) -> None:
    upto = len(broker.log.segments) + segments
    while len(broker.log.segments) < upto:
        send(broker, topic, b"x" * size)
        turn(broker)


def made(fs: FaultyFileSystem, clock: VirtualClock, **configs: str) -> BareNode:
    broker = open_broker(fs, clock)
    broker.create_topic("t", 1, {name.replace("_", "."): value for name, value in configs.items()})
    turn(broker)
    return broker


# -- jobs --------------------------------------------------------------------------------------------------------------


def test_one_job_at_a_time(fs: FaultyFileSystem, clock: VirtualClock) -> None:
    broker = made(fs, clock)
    for _ in range(6):
        send(broker, "t", b"x" * 9_000)
        broker.write()
        sync(broker)
        broker.housekeeping.plan()
    job = broker.housekeeping.next_job()
    assert job is not None
    assert broker.housekeeping.next_job() is None
    job.done(job.run())
    assert broker.housekeeping.next_job() is not None


def test_what_is_not_flushed_is_not_indexed(fs: FaultyFileSystem, clock: VirtualClock) -> None:
    broker = open_broker(fs, clock, flush="interval")
    broker.create_topic("t", 1)
    send(broker, "t", b"x" * 20_000)
    broker.write()
    broker.settle()
    broker.housekeeping.plan()
    jobs(broker)
    assert broker.housekeeping.indexes.files == []
    sync(broker)
    jobs(broker)
    assert len(broker.housekeeping.indexes.files) == 1


def test_a_job_that_fails_is_told_and_tried_again_at_the_next_turn(fs: FaultyFileSystem, clock: VirtualClock) -> None:
    broker = made(fs, clock)
    send(broker, "t", b"x" * 20_000)
    broker.write()
    sync(broker)
    broker.housekeeping.plan()
    job = broker.housekeeping.next_job()
    assert job is not None
    job.failed(OSError("disk on fire"))
    assert broker.health() == ["writing an index failed: disk on fire"]
    assert broker.housekeeping.next_job() is None, "not at once"
    broker.housekeeping.turn()
    jobs(broker)
    assert broker.health() == []
    assert len(broker.housekeeping.indexes.files) == 1
    assert values(broker, "t") == [b"x" * 20_000]


def test_a_segment_that_could_not_be_made_ahead_is_no_harm(fs: FaultyFileSystem, clock: VirtualClock) -> None:
    broker = made(fs, clock)
    send(broker, "t", b"x" * 40_000)
    broker.write()
    sync(broker)
    job = broker.housekeeping.next_job()
    assert job is not None
    assert job.name == "allocating a segment"
    job.failed(OSError("not now"))
    fill(broker, "t", 1)
    broker.housekeeping.turn()
    fill(broker, "t", 1)
    assert broker.health() == []


def test_after_a_failure_of_the_log_nothing_is_begun(fs: FaultyFileSystem, clock: VirtualClock) -> None:
    broker = made(fs, clock)
    fs.fail_write = True
    send(broker, "t", b"x" * 60_000)
    broker.write()
    broker.housekeeping.plan()
    assert broker.housekeeping.next_job() is None


# -- checkpoints -------------------------------------------------------------------------------------------------------


def test_checkpoints_keep_a_restart_short(fs: FaultyFileSystem, clock: VirtualClock) -> None:
    broker = made(fs, clock)
    for _ in range(40):
        clock.now_ms += checkpoints.CHECKPOINT_INTERVAL_MS
        send(broker, "t", b"x" * 4_000)
        turn(broker)
    again = open_broker(fs.kill(), clock)
    assert again.report.snapshot_position > 40 * 4_000 - 20_000
    assert again.report.frames < 10
    assert len(values(again, "t")) == 40


def test_checkpoints_are_not_made_faster_than_their_interval(fs: FaultyFileSystem, clock: VirtualClock) -> None:
    broker = made(fs, clock)
    clock.now_ms += checkpoints.CHECKPOINT_INTERVAL_MS
    fill(broker, "t", 3)
    first = snapshot.load(fs)
    assert first is not None
    fill(broker, "t", 3)
    assert snapshot.load(fs) == first


def test_a_checkpoint_that_was_due_too_early_is_made_at_the_clocks_turn(
    fs: FaultyFileSystem, clock: VirtualClock
) -> None:
    broker = made(fs, clock)
    clock.now_ms += checkpoints.CHECKPOINT_INTERVAL_MS
    fill(broker, "t", 3)
    clock.now_ms += checkpoints.CHECKPOINT_INTERVAL_MS - 1
    fill(broker, "t", 3)
    early = snapshot.load(fs)
    broker.housekeeping.turn()
    turn(broker)
    assert snapshot.load(fs) == early
    clock.now_ms += 1
    broker.housekeeping.turn()
    turn(broker)
    assert open_broker(fs.kill(), clock).report.snapshot_position == broker.log.end


def test_a_catalog_that_takes_long_to_encode_is_checkpointed_less_often(
    fs: FaultyFileSystem, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = made(fs, clock)
    take = snapshot.take

    def slow_take(*args: object, **options: object) -> bytes:
        if options.get("producers", True):  # not the head of a segment
            clock.now_ms += 50
        return take(*args, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(snapshot, "take", slow_take)
    clock.now_ms += checkpoints.CHECKPOINT_INTERVAL_MS
    fill(broker, "t", 3)
    first = snapshot.load(fs)
    clock.now_ms += 50 * checkpoints.CHECKPOINT_REST - 60
    fill(broker, "t", 3)
    assert snapshot.load(fs) == first
    clock.now_ms += 60
    fill(broker, "t", 3)
    assert snapshot.load(fs) != first


def test_what_little_was_appended_is_checkpointed_after_a_time(fs: FaultyFileSystem, clock: VirtualClock) -> None:
    broker = made(fs, clock)
    send(broker, "t", b"little")
    turn(broker)
    clock.now_ms += broker.log.checkpoint_after_ms
    broker.housekeeping.turn()
    turn(broker)
    again = open_broker(fs.kill(), clock)
    assert again.report.snapshot_position == broker.log.end
    files = len(fs.listdir("index"))
    clock.now_ms += broker.log.checkpoint_after_ms
    broker.housekeeping.turn()
    turn(broker)
    assert len(fs.listdir("index")) == files, "nothing new, nothing done"


# -- very many partitions ----------------------------------------------------------------------------------------------


@pytest.fixture
def wide(fs: FaultyFileSystem, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch) -> Iterator[BareNode]:
    """A broker to which seven partitions are very many."""
    with small_slices():
        broker = open_broker(fs, clock)
        broker.create_topic("wide", 7)
        for index in range(7):
            send(broker, "wide", b"v", index=index)
        turn(broker)
        clock.now_ms += checkpoints.CHECKPOINT_INTERVAL_MS
        yield broker


def begun(broker: BareNode) -> str:
    """The next job runs; its name."""
    job = broker.housekeeping.next_job()
    assert job is not None
    job.done(job.run())
    return job.name


def test_a_checkpoint_is_prepared_in_slices(fs: FaultyFileSystem, clock: VirtualClock, wide: BareNode) -> None:
    """What comes meanwhile is in it, too."""
    partitions = [partition_of(wide, "wide", index) for index in range(7)]
    for partition in partitions:
        partition.saved = None
    wide.housekeeping.freeze()
    assert [partition.saved is not None for partition in partitions] == [True] * 2 + [False] * 5
    send(wide, "wide", b"more", index=0)
    assert partitions[0].saved is None
    wide.write()
    sync(wide)
    names = []
    while not (found := snapshot.load(fs)) or not found.position:
        names.append(begun(wide))
    assert names == ["preparing a checkpoint"] * 3 + ["closing index tails"] * 6 + ["writing an index"]
    assert found.position == wide.log.end
    (topic,) = found.topics
    assert [each.next_offset for each in topic.partitions] == [2] + [1] * 6
    assert [begun(wide) for _ in range(6)] == ["slices in the loop"] * 6
    assert values(wide, "wide") == [b"v", b"more"]
    again = open_broker(fs.kill(), clock)
    assert again.report.snapshot_position == found.position
    assert values(again, "wide") == [b"v", b"more"]


def test_a_checkpoint_of_many_groups_is_prepared_in_slices(fs: FaultyFileSystem, clock: VirtualClock) -> None:
    """However few partitions there are."""
    broker = open_broker(fs, clock, segment_bytes=8 << 20, index_checkpoint_bytes=8 << 20)
    topic, _ = broker.create_topic("t", 1)
    for number in range(3_500):
        committed = [(topic.number, 0, Committed(number, -1, "", 0))]
        broker.append_control(control.OffsetsCommitted(f"g{number}", committed))
    clock.now_ms += 2 * checkpoints.CHECKPOINT_INTERVAL_MS
    broker.housekeeping.freeze()
    broker.write()
    sync(broker)
    names = []
    while not (found := snapshot.load(fs)) or not found.position:
        names.append(begun(broker))
    assert names.count("preparing a checkpoint") == 3
    again = open_broker(fs.kill(), clock)
    assert again.report.snapshot_position == found.position
    assert again.groups.offsets("g3499")[partition_of(again, "t")].offset == 3_499


def test_the_head_of_the_next_segment_is_prepared_while_there_is_room_yet(clock: VirtualClock, wide: BareNode) -> None:
    partitions = [partition_of(wide, "wide", index) for index in range(7)]
    segment = wide.log.segments[-1]
    assert 0 < segment.end - wide.log.end <= SEGMENT
    while (segment.end - wide.log.end) * checkpoints.NEARLY_FULL > segment.end - segment.start:
        for partition in partitions:
            partition.saved = None
        send(wide, "wide", b"x" * 500)
        wide.write()
        sync(wide)
    for _ in range(8):
        wide.housekeeping.plan()
    assert None not in [partition.saved for partition in partitions]
    assert wide.log.segments[-1] is segment


def test_a_clean_stop_ends_what_was_begun(fs: FaultyFileSystem, clock: VirtualClock, wide: BareNode) -> None:
    wide.housekeeping.freeze()
    while begun(wide) != "writing an index":
        pass
    wide.close()
    again = open_broker(fs.kill(), clock)
    assert again.report.clean
    assert [values(again, "wide", index) for index in range(7)] == [[b"v"]] * 7


def test_segments_are_looked_for_behind_what_is_under_way(clock: VirtualClock, wide: BareNode) -> None:
    """Found by torture: the cleaner asks for it at any time."""
    wide.housekeeping.freeze()
    while begun(wide) != "writing an index":
        pass
    job = wide.housekeeping.next_job()
    assert job is not None
    for _ in range(20):
        wide.housekeeping.drop_segments()
    job.done(job.run())
    jobs(wide)
    assert not wide.dispatch.frozen
    assert values(wide, "wide") == [b"v"]


def test_segments_go_in_slices(fs: FaultyFileSystem, clock: VirtualClock, wide: BareNode) -> None:
    while len(wide.log.segments) < 4:
        for index in range(7):
            send(wide, "wide", b"x" * 900, index=index)
        turn(wide)
    wide.delete_topic(wide.topic("wide"))  # type: ignore[arg-type]
    turn(wide)
    start = wide.log.start
    assert retain(wide) > 7
    assert wide.log.start > start
    again = open_broker(fs.kill(), clock)
    assert again.log.start == wide.log.start
    assert again.report.damaged == []


# -- retention ---------------------------------------------------------------------------------------------------------


def test_retention_counts_from_when_a_record_was_stored(fs: FaultyFileSystem, clock: VirtualClock) -> None:
    broker = made(fs, clock, retention_ms=str(DAY_MS))
    for number in range(30):
        send(broker, "t", b"%d" % number + b"x" * 9_000, timestamp=1000)  # records of 1970
        turn(broker)
    retain(broker)
    assert partition_of(broker, "t").start_offset == 0
    clock.now_ms += DAY_MS - 10
    for _ in range(3):
        send(broker, "t", b"new" + b"x" * 9_000, timestamp=1000)
        turn(broker)
    retain(broker)
    assert partition_of(broker, "t").start_offset == 0
    clock.now_ms += 11
    retain(broker)
    start = partition_of(broker, "t").start_offset
    assert 20 < start <= 30, "what is indexed of the old is gone"
    assert broker.log.start > 0
    assert broker.housekeeping.start_offset_moves == 1
    kept = read_all(broker, "t")
    assert kept[0][0] == start
    again = open_broker(fs.power_loss(), clock)
    assert read_all(again, "t") == kept


def test_retention_by_bytes_keeps_at_least_so_many(fs: FaultyFileSystem, clock: VirtualClock) -> None:
    broker = made(fs, clock, retention_bytes="100000")
    fill(broker, "t", 6)
    retain(broker)
    partition = partition_of(broker, "t")
    left = partition.queue.bytes_from(partition.start_offset, 1 << 30)
    assert 100_000 <= left < 100_000 + SEGMENT
    assert len(broker.log.segments) <= 4


def test_without_a_limit_nothing_expires(fs: FaultyFileSystem, clock: VirtualClock) -> None:
    broker = made(fs, clock, retention_ms="-1")
    fill(broker, "t", 3)
    clock.now_ms += 10_000 * DAY_MS
    retain(broker)
    assert (partition_of(broker, "t").start_offset, broker.log.start) == (0, 0)


def test_a_segment_lives_as_long_as_anything_in_it(fs: FaultyFileSystem, clock: VirtualClock) -> None:
    broker = made(fs, clock, retention_ms=str(DAY_MS))
    broker.create_topic("kept", 1, {"retention.ms": "-1"})
    fill(broker, "t", 1)
    send(broker, "kept", b"in the second segment")
    fill(broker, "t", 3)
    clock.now_ms += 2 * DAY_MS
    retain(broker)
    assert broker.log.start == SEGMENT
    assert values(broker, "kept") == [b"in the second segment"]
    broker.delete_topic(broker.topic("kept"))  # type: ignore[arg-type]
    retain(broker)
    assert broker.log.start > SEGMENT


def test_a_deleted_topics_segments_go(fs: FaultyFileSystem, clock: VirtualClock) -> None:
    broker = made(fs, clock, retention_ms="-1")
    fill(broker, "t", 4)
    broker.delete_topic(broker.topic("t"))  # type: ignore[arg-type]
    retain(broker)
    assert len(broker.log.segments) == 1
    assert [path for path in fs.names if path.startswith("log/")] <= [segment_path(broker.log.start), "log/spare"]
    assert all(file.start >= broker.log.start for file in broker.housekeeping.indexes.files)


@pytest.mark.parametrize("what", ["deleted", "cut"])
def test_a_segment_goes_only_when_what_made_it_dead_is_on_disk(
    fs: FaultyFileSystem, clock: VirtualClock, what: str
) -> None:
    broker = made(fs, clock)
    fill(broker, "t", 3)
    before = read_all(broker, "t")
    if what == "deleted":
        broker.delete_topic(broker.topic("t"))  # type: ignore[arg-type]
    else:
        broker.delete_records(partition_of(broker, "t"), -1)
    broker.housekeeping.drop_segments()
    broker.housekeeping.drop_segments()
    jobs(broker)
    assert broker.log.start == 0
    assert read_all(open_broker(fs.kill(), clock), "t") == before
    turn(broker)
    assert broker.log.start > 0


def test_each_file_is_removed_by_a_job_of_its_own(fs: FaultyFileSystem, clock: VirtualClock) -> None:
    """To give back a cached GiB takes the kernel 200 ms: not in the loop, and not while an index file waits for ten."""
    broker = made(fs, clock)
    fill(broker, "t", 6)
    names = sorted(segments_on_disk(fs))
    broker.delete_records(partition_of(broker, "t"), -1)
    broker.flush()
    broker.housekeeping.drop_segments()
    broker.housekeeping.turn()
    assert sorted(segments_on_disk(fs)) == names
    gone = 0
    while (job := broker.housekeeping.next_job()) is not None:
        before = set(fs.names)
        result = job.run()
        if job.name == "removing a file":
            gone += 1
            assert sorted(segments_on_disk(fs)) == names[gone:], "the oldest first"
            assert [path for path in before - set(fs.names) if path.startswith("index/")]
        before = set(fs.names)
        job.done(result)
        assert set(fs.names) == before
    assert len(broker.log.segments) == 1
    assert gone == 6


def segments_on_disk(fs: FaultyFileSystem) -> list[str]:
    return [path for path in fs.names if path.startswith("log/") and path != "log/spare"]


def test_a_file_that_cannot_be_removed_keeps_the_later_ones(fs: FaultyFileSystem, clock: VirtualClock) -> None:
    """Else the log would have a gap at the next start."""
    broker = made(fs, clock)
    fill(broker, "t", 4)
    names = sorted(segments_on_disk(fs))
    broker.delete_records(partition_of(broker, "t"), -1)
    broker.flush()
    broker.housekeeping.drop_segments()
    rename, remove = fs.rename, fs.remove

    def refuse(path: str, *to: str) -> None:
        raise OSError(errno.EIO, "no")

    fs.rename = fs.remove = refuse  # type: ignore[method-assign]
    jobs(broker)
    broker.housekeeping.turn()
    jobs(broker)
    assert any("removing a file failed" in problem for problem in broker.health())
    fs.rename, fs.remove = rename, remove  # type: ignore[method-assign]
    assert sorted(segments_on_disk(fs)) == names
    open_broker(fs.kill(), clock)
    broker.housekeeping.turn()
    jobs(broker)
    assert broker.health() == []
    assert len(segments_on_disk(fs)) == 1


def test_segments_go_while_the_log_is_never_flushed_to_its_end(fs: FaultyFileSystem, clock: VirtualClock) -> None:
    """As under load, where something is always waiting for the next fdatasync."""
    broker = made(fs, clock, retention_ms=str(DAY_MS))
    fill(broker, "t", 3)
    clock.now_ms += 2 * DAY_MS
    for _ in range(3):
        send(broker, "t", b"load")
        turn(broker)
        send(broker, "t", b"load")
        while not broker.housekeeping.retain():
            pass
    assert broker.log.flushed < broker.log.end
    assert broker.log.start > 0


def test_the_walk_is_cut_into_slices(
    fs: FaultyFileSystem, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("halfmoon.core.retention.SLICE_COST", 20)
    broker = made(fs, clock)
    broker.create_topic("many", 200)
    turn(broker)
    assert retain(broker) > 8
    fill(broker, "t", 2)
    clock.now_ms += 8 * DAY_MS
    retain(broker)
    assert broker.log.start > 0


def test_silent_producers_are_forgotten_after_a_day(fs: FaultyFileSystem, clock: VirtualClock) -> None:
    broker = made(fs, clock)
    send(broker, "t", b"a", producer_id=5, sequence=0)
    turn(broker)
    clock.now_ms += DAY_MS
    retain(broker)
    with pytest.raises(BrokerError):
        send(broker, "t", b"c", producer_id=5, sequence=7)
    clock.now_ms += 1
    retain(broker)
    assert send(broker, "t", b"c", producer_id=5, sequence=7).base_offset == 1


def test_retention_survives_a_disk_that_refuses(fs: FaultyFileSystem, clock: VirtualClock) -> None:
    broker = open_broker(fs, clock)
    broker.create_topic("t", 1)
    fill(broker, "t", 2)
    broker.groups.commit("g", -1, "", None, [(partition_of(broker, "t"), 1, -1, "")])
    turn(broker)
    clock.now_ms += 8 * DAY_MS
    fs.fail_write = True
    send(broker, "t", b"x")
    broker.write()
    assert broker.log.failed is not None
    while not broker.housekeeping.retain():
        pass
    assert broker.housekeeping.retain(), "and it comes again"
    assert any("retention" in problem for problem in broker.housekeeping.problems)
    assert broker.log.start == 0


# -- a full disk -------------------------------------------------------------------------------------------------------


def test_writing_resumes_when_there_is_room_again(fs: FaultyFileSystem, clock: VirtualClock) -> None:
    broker = open_broker(fs, clock, low_disk_bytes=2 * SEGMENT)
    broker.create_topic("t", 1)
    turn(broker)
    fs.free = 4 * SEGMENT
    sent = 0

    def send_until_refused() -> None:
        nonlocal sent
        while True:
            send(broker, "t", b"x" * 9_000)
            turn(broker)
            sent += 1

    with pytest.raises(BrokerError, match="nearly full"):
        send_until_refused()
    assert sent > 5
    assert any("writes are refused" in line for line in broker.health())
    assert len(values(broker, "t")) == sent, "reads go on"
    broker.groups.commit("g", -1, "", None, [(partition_of(broker, "t"), 1, -1, "")])
    broker.delete_records(partition_of(broker, "t"), sent - 1)
    turn(broker)
    assert broker.groups.offsets("g")
    broker.housekeeping.turn()
    with pytest.raises(BrokerError):
        send(broker, "t", b"y")
    # Retention makes room: the segments of what was deleted go.
    retain(broker)
    sync(broker)
    broker.housekeeping.turn()
    assert broker.health() == []
    assert send(broker, "t", b"y").base_offset == sent
    turn(broker)
    assert values(broker, "t")[-1] == b"y"


def test_due_start_looks_no_further_than_it_must(fs: FaultyFileSystem, clock: VirtualClock) -> None:
    broker = made(fs, clock, retention_ms=str(DAY_MS))
    fill(broker, "t", 8)
    partition = partition_of(broker, "t")
    assert due_start(partition, clock.now_ms) == (0, 2)
    start, cost = due_start(partition, clock.now_ms + 2 * DAY_MS)
    assert start > 0
    assert cost >= 8


def test_every_job_says_what_it_does(fs: FaultyFileSystem, clock: VirtualClock) -> None:
    broker = made(fs, clock)
    names = set()
    run: Callable[[], object]
    while len(broker.log.segments) < 4:
        send(broker, "t", b"x" * 9_000)
        broker.write()
        sync(broker)
        broker.housekeeping.plan()
        while (job := broker.housekeeping.next_job()) is not None:
            names.add(job.name)
            run = job.run
            job.done(run())
    assert names == {"allocating a segment", "writing an index", "merging indexes"}


def test_many_small_batches_are_checkpointed_before_they_are_many_bytes(
    fs: FaultyFileSystem, clock: VirtualClock
) -> None:
    """A start takes time for each of them, however small it is."""
    broker = open_broker(fs, clock, segment_bytes=1 << 20, index_checkpoint_bytes=1 << 20)
    broker.log.checkpoint_batches = 20
    broker.create_topic("t", 1)
    for _ in range(50):
        send(broker, "t", b"v")
        turn(broker)
        clock.now_ms += 100
    again = open_broker(fs.kill(), clock, segment_bytes=1 << 20, index_checkpoint_bytes=1 << 20)
    assert again.report.snapshot_position > 0
    assert again.report.frames <= 25
    assert len(values(again, "t")) == 50
