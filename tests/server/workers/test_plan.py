"""What each worker is told."""

from __future__ import annotations

import os
from pathlib import Path

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


def test_sockets_lie_elsewhere_where_their_paths_are_too_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deep, runtime = tmp_path / ("d" * 100), tmp_path / "r"
    for folder in (deep, runtime):
        folder.mkdir()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(runtime))
    found = plan(deep).sockets()
    assert {path.parent for path in found} == {runtime}
    assert len({*found, admin_socket.path_of(deep)}) == 7
    assert all(len(os.fsencode(path)) <= admin_socket.LONGEST_PATH for path in found)
    assert found == plan(deep).sockets()


def test_workers_serve_there_and_leave_no_sockets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deep, runtime = tmp_path / ("d" * 100), tmp_path / "r"
    for folder in (deep, runtime):
        folder.mkdir()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(runtime))
    with Broker(workers=2, data_dir=str(deep)) as broker:
        produce(broker, b"one")
        assert consume(broker, 1) == [b"one"]
        assert len(list(runtime.iterdir())) == 5
    assert list(runtime.iterdir()) == []
    with Broker(workers=2, data_dir=str(deep)) as broker:
        assert consume(broker, 1) == [b"one"]
