"""Backups: a broker that starts on one has all that was acknowledged when it was taken; the original never notices."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

from halfmoon.core.storage.files import OsFileSystem
from halfmoon.errors import StartError
from halfmoon.offline import backup as module
from halfmoon.offline.backup import backup, restore
from halfmoon.offline.verifying import verify
from halfmoon.testing.node import BareNode
from tests.core.bench import SEGMENT, VirtualClock, open_broker, partition_of, read_all, send, turn, values

DAY_MS = 86_400_000


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return tmp_path / "source"


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tmp_path / "target"


def opened(root: Path, clock: VirtualClock) -> BareNode:
    return open_broker(OsFileSystem(root), clock)


@pytest.fixture
def broker(source: Path, clock: VirtualClock) -> BareNode:
    """Five segments; the catalog changed in each of them."""
    broker = opened(source, clock)
    broker.create_topic("t", 1)
    turn(broker)
    fill(broker, 5)
    return broker


def fill(broker: BareNode, segments: int) -> None:
    while len(broker.log.segments) < segments:
        number = partition_of(broker, "t").next_offset
        send(broker, "t", b"%d-" % number + b"x" * 9_000)
        broker.groups.commit("g", -1, "", None, [(partition_of(broker, "t"), number, -1, "")])
        turn(broker)


def sealed(broker: BareNode) -> list[tuple[int, bytes]]:
    """The records of all segments but the last."""
    end = broker.log.segments[-1].start
    rows = [
        (run.columns.base[row], run.columns.position[row])
        for run in partition_of(broker, "t").queue.runs()
        for row in range(run.low, run.high)
    ]
    offsets = {base for base, position in rows if position < end}
    return [record for record in read_all(broker, "t") if record[0] in offsets]


def use_copies(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(source: object, target: object) -> None:
        raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))

    monkeypatch.setattr(module, "os", SimpleNamespace(link=refuse, PathLike=os.PathLike))


@pytest.mark.parametrize("linked", [True, False])
def test_a_broker_starts_on_a_backup_and_has_everything(
    broker: BareNode, source: Path, target: Path, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch, linked: bool
) -> None:
    if not linked:
        use_copies(monkeypatch)
    expected = read_all(broker, "t")
    told: list[tuple[int, int]] = []
    report = backup(source, target, lambda done, total: told.append((done, total)))
    end = broker.log.end
    assert (report.start, report.end, report.segments, report.bytes) == (0, end, 5, end)
    assert (report.linked, report.expired, report.topics) == (4 if linked else 0, 0, 1)
    assert told == [(n * SEGMENT, 4 * SEGMENT) for n in range(1, 5)]
    assert verify(target).ok
    # The original goes on, and the copy does not change with it.
    fill(broker, 7)
    again = opened(target, clock)
    assert read_all(again, "t") == expected
    assert (again.report.end, again.report.damaged) == (end, [])
    assert 0 < again.report.frames < len(expected), "those behind the last segment's head"
    assert again.report.indexed_again < SEGMENT
    assert again.health() == []
    assert again.cluster_id == broker.cluster_id
    progress = again.groups.offsets("g")[partition_of(again, "t")].offset
    assert progress == expected[-1][0]
    sent = send(again, "t", b"goes on")
    turn(again)
    assert sent.base_offset == expected[-1][0] + 1
    assert values(again, "t")[-1] == b"goes on"
    again.close()
    assert read_all(broker, "t")[: len(expected)] == expected
    broker.close()
    assert verify(source).ok


def test_a_young_broker_is_backed_up_like_any_other(source: Path, target: Path, clock: VirtualClock) -> None:
    broker = opened(source, clock)
    broker.create_topic("t", 3)
    send(broker, "t", b"a")
    turn(broker)
    report = backup(source, target)
    assert (report.segments, report.topics, report.end) == (1, 1, broker.log.end)
    assert verify(target).records == 1
    again = opened(target, clock)
    assert values(again, "t") == [b"a"]
    again.close()
    broker.close()


def test_what_is_being_written_is_left_out(broker: BareNode, source: Path, target: Path, clock: VirtualClock) -> None:
    """Half of a frame stands at the end of the file when it is copied."""
    expected, end = read_all(broker, "t"), broker.log.end
    send(broker, "t", b"y" * 5_000)
    turn(broker)
    last, cut = broker.log.segments[-1], (end + broker.log.end) // 2
    last.file.pwritev([bytes(broker.log.end - cut)], cut - last.start)
    report = backup(source, target)
    assert report.end == end
    assert verify(target).torn_bytes == 0
    again = opened(target, clock)
    assert read_all(again, "t") == expected
    again.close()


def test_a_backup_survives_that_the_original_expires_and_reuses_its_segments(
    broker: BareNode, source: Path, target: Path, clock: VirtualClock
) -> None:
    expected = read_all(broker, "t")
    backup(source, target)
    broker.delete_records(partition_of(broker, "t"), -1)
    turn(broker)
    broker.housekeeping.drop_segments()
    turn(broker)
    assert len(broker.log.segments) == 1
    fill(broker, 4)
    again = opened(target, clock)
    assert read_all(again, "t") == expected
    again.close()
    broker.close()


@pytest.mark.parametrize("linked", [True, False])
@pytest.mark.parametrize("expiring_at", [0, 1, 3])
def test_segments_that_expire_while_the_backup_is_made_are_left_out(
    broker: BareNode,
    source: Path,
    target: Path,
    clock: VirtualClock,
    monkeypatch: pytest.MonkeyPatch,
    linked: bool,
    expiring_at: int,
) -> None:
    """At the given segment the original drops the first three, and overwrites what it reuses."""
    if not linked:
        use_copies(monkeypatch)
    taken = 0
    original = module._Backup._take

    def take(self: module._Backup, segment: object) -> bool:
        nonlocal taken
        if taken == expiring_at:
            broker.delete_records(partition_of(broker, "t"), sealed(broker)[-2][0])
            turn(broker)
            broker.housekeeping.drop_segments()
            turn(broker)
            fill(broker, 4)
        taken += 1
        return original(self, segment)  # type: ignore[arg-type]

    monkeypatch.setattr(module._Backup, "_take", take)
    report = backup(source, target)
    start = broker.log.start
    assert start == 3 * SEGMENT
    again = opened(target, clock)
    assert again.health() == []
    if expiring_at in (0, 1):
        assert (report.start, report.segments, report.expired) == (start, 2, 3)
    else:
        assert (report.start, report.segments, report.expired) == (0, 5, 0), "what was taken before stays good"
    kept = read_all(again, "t")
    assert kept == read_all(broker, "t")[: len(kept)] != []
    again.close()
    broker.close()


def test_a_copy_of_a_segment_that_was_reused_meanwhile_does_not_count(
    broker: BareNode, source: Path, target: Path, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_copies(monkeypatch)
    original = module._Backup._copy

    def copy(self: module._Backup, segment: object, size: int) -> bool:
        if broker.log.start == 0:
            broker.delete_records(partition_of(broker, "t"), sealed(broker)[-2][0])
            turn(broker)
            broker.housekeeping.drop_segments()
            turn(broker)
            fill(broker, 5)
        return original(self, segment, size)  # type: ignore[arg-type]

    monkeypatch.setattr(module._Backup, "_copy", copy)
    report = backup(source, target)
    assert report.start == 3 * SEGMENT
    assert verify(target).ok
    broker.close()


def test_nothing_is_overwritten(broker: BareNode, source: Path, target: Path) -> None:
    target.mkdir()
    (target / "precious").write_bytes(b"x")
    with pytest.raises(StartError, match="exists already"):
        backup(source, target)
    with pytest.raises(StartError, match="exists already"):
        backup(source, target / "precious")
    assert [path.name for path in target.iterdir()] == ["precious"]
    broker.close()


def test_what_is_no_data_directory_cannot_be_backed_up(tmp_path: Path, target: Path) -> None:
    with pytest.raises(StartError, match="no data directory"):
        backup(tmp_path, target)
    with pytest.raises(StartError, match="no directory"):
        backup(tmp_path / "nowhere", target)
    assert not target.exists()


def test_a_backup_that_was_cut_off_is_no_data_directory(
    broker: BareNode, source: Path, target: Path, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(self: object, *args: object) -> None:
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(module._Backup, "_take_derived", full)
    with pytest.raises(OSError, match="full"):
        backup(source, target)
    with pytest.raises(StartError):
        opened(target, clock)
    broker.close()


def test_a_backup_can_be_restored_more_than_once(
    broker: BareNode, source: Path, target: Path, clock: VirtualClock, tmp_path: Path
) -> None:
    expected = read_all(broker, "t")
    backup(source, target)
    broker.close()
    before = {path: path.read_bytes() for path in target.rglob("*") if path.is_file()}
    for name in ("one", "two"):
        told: list[tuple[int, int]] = []
        copied = restore(target, tmp_path / name, lambda done, total, told=told: told.append((done, total)))  # type: ignore[misc]
        assert told[-1] == (copied, copied)
        assert verify(tmp_path / name).ok
        again = opened(tmp_path / name, clock)
        assert read_all(again, "t") == expected
        assert again.cluster_id == broker.cluster_id
        send(again, "t", b"goes on")
        turn(again)
        again.close()
    assert {path: path.read_bytes() for path in target.rglob("*") if path.is_file()} == before


def test_a_restore_overwrites_nothing_and_takes_backups_only(
    broker: BareNode, source: Path, target: Path, tmp_path: Path
) -> None:
    backup(source, target)
    with pytest.raises(StartError, match="exists already"):
        restore(target, source)
    with pytest.raises(StartError, match="is no backup"):
        restore(tmp_path, tmp_path / "new")
    held = OsFileSystem(source)
    held.lock()
    with pytest.raises(StartError, match="running broker"):
        restore(source, tmp_path / "new")
    held.unlock()
    assert not (tmp_path / "new").exists()
    broker.close()


def test_a_restore_that_was_cut_off_is_no_data_directory(
    broker: BareNode, source: Path, target: Path, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    backup(source, target)
    broker.close()
    copied = 0

    def full(one: Path, other: Path) -> None:
        nonlocal copied
        copied += 1
        if copied > 3:
            raise OSError(errno.ENOSPC, "full")
        shutil.copyfile(one, other)

    monkeypatch.setattr(module, "copy_file", full)
    with pytest.raises(OSError, match="full"):
        restore(target, tmp_path / "new")
    with pytest.raises(StartError):
        verify(tmp_path / "new")
