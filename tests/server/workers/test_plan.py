"""What each worker is told."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from halfmoon.server import admin_socket
from halfmoon.server.workers.plan import Plan
from halfmoon.testing import Broker
from tests.testing.test_broker import consume, produce


def plan(folder: Path) -> Plan:
    return Plan(str(folder), 0, 3, 16, {}, {})


def test_sockets_lie_in_the_data_directory(tmp_path: Path) -> None:
    found = plan(tmp_path)
    assert found.link(2) == tmp_path / "link-2.sock"
    assert found.socket(1) == tmp_path / "worker-1.sock"
    assert len(set(found.sockets())) == 6


@pytest.fixture
def deep(tmp_path: Path) -> Path:
    """A data directory whose path is too long."""
    folder = tmp_path / ("d" * 100)
    folder.mkdir()
    return folder


@pytest.fixture
def runtime(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """One whose path is short, as the system's is; `tmp_path` may be anything."""
    with TemporaryDirectory(prefix="hm-", dir="/tmp") as folder:
        monkeypatch.setenv("XDG_RUNTIME_DIR", folder)
        yield Path(folder)


def test_sockets_lie_elsewhere_where_their_paths_are_too_long(deep: Path, runtime: Path) -> None:
    found = plan(deep).sockets()
    assert {path.parent for path in found} == {runtime}
    assert len({*found, admin_socket.path_of(deep)}) == 7
    assert all(len(os.fsencode(path)) <= admin_socket.LONGEST_PATH for path in found)
    assert found == plan(deep).sockets()


def test_workers_serve_there_and_leave_no_sockets(deep: Path, runtime: Path) -> None:
    with Broker(workers=2, data_dir=str(deep)) as broker:
        produce(broker, b"one")
        assert consume(broker, 1) == [b"one"]
        assert len(list(runtime.iterdir())) == 5
    assert list(runtime.iterdir()) == []
    with Broker(workers=2, data_dir=str(deep)) as broker:
        assert consume(broker, 1) == [b"one"]
