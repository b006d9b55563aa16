"""A data directory of shards, copied; the commands, over processes that serve it: tests/cli/test_log_shards.py."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from halfmoon.offline import backup, shards
from halfmoon.server.workers.importing import import_directory
from tests.core.bench import VirtualClock, send, turn
from tests.server.workers.import_bench import SHARDS, open_one


@pytest.fixture
def imported(tmp_path: Path, clock: VirtualClock) -> Path:
    """Shards that share the segments of before."""
    folder = tmp_path / "data"
    broker = open_one(folder, clock, segment_bytes=64 << 10)
    broker.create_topic("t", SHARDS)
    while len(broker.log.segments) < 4:
        send(broker, "t", b"x" * 9_000)
        turn(broker)
    broker.close()
    assert import_directory(folder, SHARDS, clock=clock) is not None
    return folder


def _segments(root: Path) -> tuple[int, int]:
    """How many names there are, and files."""
    found = [path.stat().st_ino for path in root.glob("shard-*/log/0*")]
    return len(found), len({*found})


@pytest.mark.parametrize("elsewhere", [False, True])
def test_what_shards_share_is_copied_once(
    imported: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, elsewhere: bool
) -> None:
    saved, restored = tmp_path / "saved", tmp_path / "restored"

    def link(source: Path, target: Path) -> None:
        if elsewhere and imported in source.parents and saved in target.parents:
            raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))
        os.link(source, target)

    monkeypatch.setattr(backup, "os", SimpleNamespace(link=link, PathLike=os.PathLike))
    before = _segments(imported)
    assert before[0] > before[1] + SHARDS
    report = shards.copy(imported, saved)
    assert sum(shard.linked for shard in report.shards.values()) == (0 if elsewhere else before[0] - SHARDS)
    assert _segments(saved) == before
    monkeypatch.undo()
    shards.restore(saved, restored)
    assert _segments(restored) == before
    assert all(report.ok for report in shards.verify(restored).values())
    for path in restored.glob("shard-*/log/0*"):
        assert path.stat().st_ino not in {each.stat().st_ino for each in saved.glob("shard-*/log/0*")}


def test_a_file_whose_copy_is_gone_is_copied_again(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    first.write_bytes(b"shared")
    os.link(first, second)
    copies = backup.Copies()
    copies.copy(first, tmp_path / "copy")
    (tmp_path / "copy").unlink()
    copies.copy(second, tmp_path / "again")
    assert (tmp_path / "again").read_bytes() == b"shared"
    with pytest.raises(FileNotFoundError):
        copies.copy(tmp_path / "nowhere", tmp_path / "none")
    assert not (tmp_path / "none").exists()
