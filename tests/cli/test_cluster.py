"""`halfmoon cluster import`, as a user gives it; the shards themselves: tests/server/workers/test_importing.py."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from halfmoon.cli.main import run
from halfmoon.testing import Broker
from tests.core.bench import VirtualClock, partition_of, send, turn
from tests.server.workers.import_bench import open_one


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    broker = open_one(folder, VirtualClock())
    broker.create_topic("t", 2)
    send(broker, "t", b"v")
    turn(broker)
    assert partition_of(broker, "t").high_watermark == 1
    broker.close()
    return folder


def test_it_says_what_it_has_made(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["cluster", "import", str(data), "--shards", "3"]) == 0
    said = capsys.readouterr()
    assert "topics" in said.out
    assert f"You may delete {data / 'before-import'}" in said.err
    assert sorted(path.name for path in data.glob("shard-*")) == ["shard-00", "shard-01", "shard-02"]
    assert run(["cluster", "import", str(data)]) == 1
    assert f"{data}: this is the data directory of several workers already" in capsys.readouterr().err


def test_it_is_told_as_json(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["cluster", "import", str(data), "-o", "json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["directory"] == str(data)
    assert said["before"] == str(data / "before-import")
    assert (said["shards"], said["topics"], said["ended_earlier"]) == (16, 1, False)


def test_what_was_left_to_be_moved_is_moved(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["cluster", "import", str(data), "--shards", "2"]) == 0
    (data / "before-import" / "log").rename(data / "log")
    capsys.readouterr()
    assert run(["cluster", "import", str(data)]) == 0
    assert "moved now" in capsys.readouterr().out
    assert not (data / "log").exists()


def test_one_process_alone_does_not_serve_it(data: Path) -> None:
    assert run(["cluster", "import", str(data), "--shards", "2"]) == 0
    with pytest.raises(Exception, match="serve it with --workers"):
        Broker(data_dir=str(data), workers=0).__enter__()
    assert not (data / "meta.json").exists()


def test_a_directory_that_is_none_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["cluster", "import", str(tmp_path / "nowhere")]) == 1
    assert "there is no such directory" in capsys.readouterr().err
    assert not (tmp_path / "nowhere").exists()
