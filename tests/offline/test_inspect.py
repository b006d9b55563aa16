"""Looking into data directories: what is found, and that nothing is touched."""

from __future__ import annotations

from pathlib import Path

import pytest

from halfmoon.core.storage import frame as frames
from halfmoon.core.storage.files import OsFileSystem
from halfmoon.core.storage.log_files import segment_path
from halfmoon.errors import StartError
from halfmoon.offline.dumping import FrameInfo, dump, dump_files
from halfmoon.offline.verifying import Report, verify, verify_files
from halfmoon.testing.faulty_files import FaultyFileSystem
from halfmoon.testing.node import BareNode
from tests.core.bench import VirtualClock, flip, open_broker, partition_of, relay, send, turn
from tests.core.log_bench import new_fs


@pytest.fixture
def broker(fs: FaultyFileSystem) -> BareNode:
    """Some segments, two topics, batches of one and two records; all flushed, indexed and checkpointed now and then."""
    clock = VirtualClock()
    broker = open_broker(fs, clock)
    broker.create_topic("t", 2)
    broker.create_topic("u", 1)
    for number in range(60):
        clock.now_ms += 11_000
        send(broker, "t", b"%d" % number, b"x" * 4_000, index=number % 2)
        send(broker, "u", b"%d" % number)
        turn(broker)
    return broker


def bytes_of(fs: FaultyFileSystem) -> dict[str, bytes]:
    return {path: bytes(inode.cache) for path, inode in fs.names.items()}


def place(broker: BareNode, topic: str, nth: int) -> int:
    """Where the frame of a partition's nth batch begins."""
    rows = [
        run.columns.position[row]
        for run in partition_of(broker, topic).queue.runs()
        for row in range(run.low, run.high)
    ]
    return rows[nth] - frames.HEADER_BYTES


def rot(broker: BareNode, fs: FaultyFileSystem, position: int) -> None:
    segment = broker.log.segment_at(position)
    flip(fs, segment_path(segment.start), position - segment.start)


def verified(fs: FaultyFileSystem) -> Report:
    before = bytes_of(fs)
    report = verify_files(fs)
    assert bytes_of(fs) == before
    return report


def test_a_running_brokers_directory_is_in_order(broker: BareNode, fs: FaultyFileSystem) -> None:
    report = verified(fs)
    assert report.ok, report
    assert (report.start, report.end, report.segments) == (0, broker.log.end, len(broker.log.segments))
    assert (report.batches, report.records) == (120, 180)
    assert report.control_records >= 3 + report.segments
    assert (report.generation, report.torn_bytes, report.clean) == (1, 0, False)
    assert report.index_files == len(broker.housekeeping.indexes.files) > 3
    assert report.checkpoint is not None


def test_key_files_are_looked_at(broker: BareNode, fs: FaultyFileSystem) -> None:
    relay(broker)
    paths = [file.path for file in broker.key_index.files]
    report = verified(fs)
    assert report.key_files == len(paths) > 0
    assert report.ok
    flip(fs, paths[0], 30)
    assert verified(fs).problems == [f"key file {paths[0]}: header checksum; it can be rebuilt from the log"]


def test_a_clean_stop_is_seen(broker: BareNode, fs: FaultyFileSystem) -> None:
    broker.close()
    report = verified(fs)
    assert report.ok
    assert report.clean
    assert report.checkpoint == report.end


@pytest.mark.parametrize("byte", [10, 150])
def test_rot_is_damage(broker: BareNode, fs: FaultyFileSystem, byte: int) -> None:
    position = place(broker, "t", 7)
    rot(broker, fs, position + byte)
    report = verified(fs)
    assert not report.ok
    ((low, high),) = report.damaged
    assert low == position < high
    assert report.batches == 119
    assert report.problems == [], "the index is not to blame"


def test_a_torn_tail_is_no_damage(broker: BareNode, fs: FaultyFileSystem) -> None:
    end = broker.log.end
    send(broker, "u", b"torn")
    send(broker, "u", b"torn")
    broker.write()
    rot(broker, fs, end + 150)
    report = verified(fs)
    assert report.ok
    assert (report.end, report.torn_bytes) == (end, broker.log.end - end)


def test_a_frame_that_was_being_written_when_it_was_read_is_no_damage(
    broker: BareNode, fs: FaultyFileSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the reader saw first was not there yet; behind it stood already a frame that knew it to be flushed."""
    position = place(broker, "u", 30)
    rot(broker, fs, position + 150)
    original = verify_files.__globals__["_Verification"]._walk

    def walk_then_written(self: object, *args: object) -> None:
        original(self, *args)
        rot(broker, fs, position + 150)

    monkeypatch.setattr(verify_files.__globals__["_Verification"], "_walk", walk_then_written)
    assert verify_files(fs).damaged == []


def test_a_segment_that_expires_meanwhile_is_no_damage(
    broker: BareNode, fs: FaultyFileSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    rot(broker, fs, place(broker, "t", 0) + 150)
    original = verify_files.__globals__["_Verification"]._walk

    def walk_then_expired(self: object, *args: object) -> None:
        original(self, *args)
        fs.remove(segment_path(0))

    monkeypatch.setattr(verify_files.__globals__["_Verification"], "_walk", walk_then_expired)
    assert verify_files(fs).damaged == []


def test_a_wrong_index_file_is_found(broker: BareNode, fs: FaultyFileSystem) -> None:
    paths = [path for path in sorted(fs.names) if path.startswith("index/")]
    flip(fs, paths[0], 50)
    size = len(fs.names[paths[1]].cache)
    flip(fs, paths[1], size - 1)
    problems = verified(fs).problems
    assert [path in problem for path, problem in zip(paths, problems, strict=False)] == [True, True]
    assert all("can be rebuilt" in problem for problem in problems)


def test_an_index_file_of_another_log_is_found(broker: BareNode, fs: FaultyFileSystem) -> None:
    """Whole in itself, and wrong: only the log can tell."""
    other_fs = new_fs()
    other = open_broker(other_fs, VirtualClock())
    other.create_topic("t", 2)
    other.create_topic("u", 1)
    for number in range(60):
        send(other, "t", b"%d" % number, b"y" * 4_001, index=number % 2)
        turn(other)
    path = next(path for path in sorted(fs.names) if path.startswith("index/"))
    other_path = next(path for path in sorted(other_fs.names) if path.startswith("index/"))
    fs.names[path] = other_fs.names[other_path]
    assert any(other_path in problem or path in problem for problem in verified(fs).problems)


def test_a_missing_index_file_is_no_problem(broker: BareNode, fs: FaultyFileSystem) -> None:
    path = next(path for path in sorted(fs.names) if path.startswith("index/"))
    fs.remove(path)
    assert verified(fs).ok


def test_an_unreadable_checkpoint_is_told(broker: BareNode, fs: FaultyFileSystem) -> None:
    flip(fs, "checkpoint", 20)
    report = verified(fs)
    assert report.problems == ["the checkpoint cannot be read; the next start will do without"]
    assert report.checkpoint is None


def test_a_gap_is_told(broker: BareNode, fs: FaultyFileSystem) -> None:
    fs.remove(segment_path(broker.log.segments[1].start))
    (problem,) = verified(fs).problems
    assert problem == "log files are missing or cut short: positions 65536 to 131072"


def test_progress_is_told(broker: BareNode, fs: FaultyFileSystem, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("halfmoon.offline.verifying._PROGRESS_FRAMES", 20)
    told: list[tuple[int, int]] = []
    verify_files(fs, lambda done, total: told.append((done, total)))
    assert len(told) > 5
    assert told == sorted(told)
    assert told[-1][0] == told[-1][1]


def test_what_is_no_data_directory_is_said(tmp_path: Path) -> None:
    with pytest.raises(StartError, match="no directory"):
        verify(tmp_path / "nowhere")
    with pytest.raises(StartError, match=r"no data directory: there is no meta\.json"):
        verify(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_log_of_a_newer_version_is_refused(fs: FaultyFileSystem, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as newer:
        newer.setattr(frames, "VERSION", 2)
        newer.setattr(frames, "READABLE_VERSIONS", frozenset({1, 2}))
        open_broker(fs, VirtualClock())
    with pytest.raises(StartError, match="newer version"):
        verify_files(fs)
    with pytest.raises(StartError, match="newer version"):
        list(dump_files(fs))


# -- dump --------------------------------------------------------------------------------------------------------------


def test_frames_are_shown_in_order_with_their_topics(broker: BareNode, fs: FaultyFileSystem) -> None:
    shown = list(dump_files(fs))
    assert [info.position for info in shown] == sorted(info.position for info in shown)
    assert shown[-1].position + shown[-1].length == broker.log.end
    assert sum(info.kind == "batch" for info in shown) == 120
    assert {info.topic for info in shown if info.kind == "batch"} == {"t", "u"}
    made = next(info for info in shown if info.control is not None and info.control.startswith("TopicCreated"))
    assert "name='t'" in (made.control or "")
    head = shown[0]
    assert (head.kind, head.position, head.parts) == ("control", 0, 1)
    assert (head.control or "").startswith("SnapshotPart(")
    batch = next(info for info in shown if info.topic == "t")
    assert batch.batch is not None
    assert (batch.partition, batch.base_offset, batch.span) == (0, 0, 2)
    assert batch.record_count == batch.batch.record_count == 2
    assert any(info.kind == "end" for info in shown)


def test_a_topic_a_position_and_a_limit_can_be_asked_for(broker: BareNode, fs: FaultyFileSystem) -> None:
    of_u = list(dump_files(fs, topic="u"))
    assert [info.base_offset for info in of_u] == list(range(60))
    position = of_u[40].position
    assert [info.base_offset for info in dump_files(fs, topic="u", from_position=position, limit=3)] == [40, 41, 42]
    assert next(dump_files(fs, topic="u", from_position=position + 1)).base_offset == 41
    assert list(dump_files(fs, limit=0)) == []
    assert list(dump_files(fs, topic="nobody")) == []


def test_damage_is_shown_where_it_is(broker: BareNode, fs: FaultyFileSystem) -> None:
    position = place(broker, "u", 5)
    rot(broker, fs, position + 20)
    shown = list(dump_files(fs))
    at = next(at for at, info in enumerate(shown) if info.kind == "damaged")
    assert shown[at] == FrameInfo(position, shown[at + 1].position - position, "damaged")


def test_directories_of_this_machine_are_read_without_a_change(tmp_path: Path) -> None:
    real = OsFileSystem(tmp_path / "data")
    broker = open_broker(real, VirtualClock())
    broker.create_topic("t", 1)
    send(broker, "t", b"a", b"b")
    turn(broker)
    before = {path: path.stat().st_mtime_ns for path in real.root.rglob("*")}
    report = verify(real.root)
    assert (report.ok, report.records) == (True, 2)
    assert [info.record_count for info in dump(real.root, topic="t")] == [2]
    assert {path: path.stat().st_mtime_ns for path in real.root.rglob("*")} == before
    broker.close()
