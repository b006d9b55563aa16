"""`halfmoon log repair`: says what is lost, changes nothing before it is told to, and leaves a whole directory."""

from __future__ import annotations

from pathlib import Path

import pytest
import typer

from halfmoon.cli.main import run
from halfmoon.core.storage.files import OsFileSystem
from halfmoon.core.storage.log_files import segment_path
from halfmoon.errors import BrokerError, Fault
from halfmoon.offline.verifying import verify
from halfmoon.server import repairing
from halfmoon.server.repairing import Lost
from halfmoon.testing.node import BareNode
from tests.core.bench import SEGMENT, VirtualClock, open_broker, partition_of, read_all, send, turn

CLOCK = VirtualClock()
Records = dict[int, dict[int, bytes]]
"""By partition and offset."""


def opened(folder: Path) -> BareNode:
    return open_broker(OsFileSystem(folder), CLOCK)


def content(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    broker = opened(folder)
    broker.create_topic("t", 2)
    for number in range(40):
        send(broker, "t", b"%d" % number + b"x" * 5_000, index=number % 2)
        turn(broker)
    broker.close()
    return folder


@pytest.fixture
def before(data: Path) -> Records:
    broker = opened(data)
    found = {index: dict(read_all(broker, "t", index)) for index in range(2)}
    broker.close()
    return found


def lost_offsets(lost: list[Lost]) -> dict[int, set[int]]:
    found: dict[int, set[int]] = {0: set(), 1: set()}
    for each in lost:
        found[each.partition] |= set(range(each.low, each.high))
    return found


def spoil(data: Path, what: str) -> None:
    segments = sorted((data / "log").glob("0*"))
    victim = {"first": segments[0], "middle": segments[1], "last": segments[-1]}[what.split()[0]]
    if what.endswith("gone"):
        victim.unlink()
    elif what.endswith("cut"):
        with victim.open("r+b") as file:
            file.truncate(victim.stat().st_size // 2)
    elif what.endswith("cut by a little"):
        with victim.open("r+b") as file:
            file.truncate(victim.stat().st_size - 20)
    else:
        with victim.open("r+b") as file:
            file.seek(30_000)
            file.write(b"rot" * 100)


@pytest.mark.parametrize(
    "what", ["first gone", "middle gone", "last gone", "first cut", "middle cut", "middle cut by a little",
             "first rotten", "middle rotten"]
)  # fmt: skip
def test_what_is_lost_is_shown_and_the_rest_is_whole(data: Path, before: Records, what: str) -> None:
    spoil(data, what)
    as_it_was = content(data)
    findings = repairing.examine(data)
    assert content(data) == as_it_was, "a look changes nothing"
    lost = lost_offsets(findings.lost)
    if not what.endswith("little"):
        assert any(lost.values())
    assert not findings.whole
    kept = repairing.repair(data, findings, "now")
    for path in kept.iterdir():
        name = path.name.replace("-", "/", 1) if path.name.startswith(("log", "index")) else path.name
        assert path.read_bytes() == as_it_was[name]
    report = verify(data)
    assert report.ok, (report.problems, report.damaged)
    assert repairing.examine(data).whole
    broker = opened(data)
    assert broker.report.missing == []
    for index, records in before.items():
        left = dict(read_all(broker, "t", index))
        for offset, value in records.items():
            if offset in lost[index]:
                with pytest.raises(BrokerError) as caught:
                    broker.read(partition_of(broker, "t", index), offset, 1 << 20, min_one=True)
                assert caught.value.fault is Fault.CORRUPT_MESSAGE
            else:
                assert left[offset] == value
        assert partition_of(broker, "t", index).next_offset >= len(records)
    broker.close()


def test_a_whole_directory_stays_as_it_is(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    as_it_was = content(data)
    assert run(["log", "repair", str(data)]) == 0
    assert capsys.readouterr().out == "whole\n"
    assert {name: each for name, each in content(data).items() if name != "lock"} == {
        name: each for name, each in as_it_was.items() if name != "lock"
    }


def test_without_meta_json(data: Path, before: Records, capsys: pytest.CaptureFixture[str]) -> None:
    (data / "meta.json").unlink()
    assert run(["log", "repair", str(data), "--yes", "--cluster-id", "kVv4Za1nTZqJ7bkA6p4rYw"]) == 0
    assert "cluster id will be kVv4Za1nTZqJ7bkA6p4rYw" in capsys.readouterr().out
    broker = opened(data)
    assert broker.kernel.cluster_id == "kVv4Za1nTZqJ7bkA6p4rYw"
    assert {index: dict(read_all(broker, "t", index)) for index in range(2)} == before
    broker.close()


def test_a_directory_that_is_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    assert run(["log", "repair", str(tmp_path), "--yes"]) == 1
    assert "no data directory" in capsys.readouterr().err


def test_it_is_asked_for(data: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    (data / segment_path(SEGMENT)).unlink()
    monkeypatch.setattr("typer.confirm", _no)
    assert run(["log", "repair", str(data)]) != 0
    said = capsys.readouterr().out
    assert f"missing: log positions {SEGMENT} to {2 * SEGMENT}" in said
    assert "lost: topic=t partition=0 offsets=" in said
    assert not (data / "damaged").exists()


def _no(*args: object, **more: object) -> bool:
    raise typer.Abort


def test_not_while_its_broker_runs(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    running = OsFileSystem(data)
    running.lock()
    try:
        assert run(["log", "repair", str(data), "--yes"]) == 1
    finally:
        running.unlock()
    assert "in use by another broker" in capsys.readouterr().err
