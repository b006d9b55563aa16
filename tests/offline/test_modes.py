"""Messages and credentials are their owner's alone: modes of the files that a broker, a backup and a restore make."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from halfmoon.core.storage.files import OsFileSystem
from halfmoon.offline import backup as module
from halfmoon.offline.backup import backup, restore
from halfmoon.services.credentials import node_key
from halfmoon.testing.node import BareNode
from tests.core.bench import VirtualClock, open_broker, send, turn


@pytest.fixture(autouse=True)
def no_umask() -> Iterator[None]:
    """Which takes nothing away here."""
    before = os.umask(0)
    yield
    os.umask(before)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def broker(data: Path, clock: VirtualClock) -> BareNode:
    """All kinds of files."""
    fs = OsFileSystem(data)
    fs.lock()
    broker = open_broker(fs, clock)
    broker.create_topic("t", 1)
    while len(broker.log.segments) < 3:
        send(broker, "t", b"x" * 9_000)
        turn(broker)
    broker.users.create("alice", secret="x")
    turn(broker)
    return broker


def modes(root: Path) -> dict[str, int]:
    """Of those that are not as they should be."""
    found = {".": root, **{str(path.relative_to(root)): path for path in root.rglob("*")}}
    assert len(found) > 8
    return {
        name: path.stat().st_mode & 0o777
        for name, path in found.items()
        if path.stat().st_mode & 0o777 != (0o700 if path.is_dir() else 0o600)
    }


def test_a_data_directory(broker: BareNode, data: Path) -> None:
    assert (data / node_key.PATH).exists()
    assert modes(data) == {}
    broker.close()
    assert modes(data) == {}
    assert OsFileSystem(data).exposed() is None


@pytest.mark.parametrize("linked", [True, False])
def test_backup_and_restore(
    broker: BareNode, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, linked: bool
) -> None:
    if not linked:

        def refuse(source: object, target: object) -> None:
            raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))

        monkeypatch.setattr(module, "os", SimpleNamespace(link=refuse, PathLike=os.PathLike))
    backup(data, tmp_path / "saved")
    assert modes(tmp_path / "saved") == {}
    monkeypatch.undo()
    restore(tmp_path / "saved", tmp_path / "again")
    assert modes(tmp_path / "again") == {}
    assert not list(tmp_path.glob(f"[sa]*/**/{node_key.PATH}")), "it has what the key protects"


def test_a_restored_broker_says_whose_secrets_are_lost(
    broker: BareNode, data: Path, tmp_path: Path, clock: VirtualClock
) -> None:
    backup(data, tmp_path / "saved")
    broker.close()
    restore(tmp_path / "saved", tmp_path / "again")
    again = open_broker(OsFileSystem(tmp_path / "again"), clock)
    assert [each.name for each in again.users.all()] == ["alice"]
    assert "alice" in again.warnings()[0]
    again.close()


@pytest.mark.parametrize("path", ["log", "index", "meta.json", node_key.PATH])
def test_what_others_may_read_is_warned_of_where_there_are_users(broker: BareNode, data: Path, path: str) -> None:
    """Directories of older versions are so: 0755 and 0644."""
    found = data / path
    if found.is_dir():
        found.chmod(0o755)
        found = next(each for each in found.iterdir() if each.is_file())
    found.chmod(0o644)
    assert broker.warnings() == [], "nobody comes so far"
    data.chmod(0o755)
    (warning,) = broker.warnings()
    assert str(found) in warning
    broker.users.delete("alice")
    assert broker.warnings() == []
