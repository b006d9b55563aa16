"""`halfmoon log repair`: says what is lost, changes nothing before it is told to, and leaves a whole directory."""

from __future__ import annotations

from pathlib import Path

import pytest
import typer

from halfmoon.cli.main import run
from halfmoon.core.catalog import snapshot
from halfmoon.core.storage import index as index_files
from halfmoon.core.storage.files import OsFileSystem
from halfmoon.core.storage.log_files import SPARE, segment_path
from halfmoon.errors import BrokerError, Fault
from halfmoon.offline.verifying import verify
from halfmoon.server import repairing
from halfmoon.server.repairing import Lost
from halfmoon.testing.node import BareNode
from tests.core.bench import SEGMENT, VirtualClock, open_broker, partition_of, read_all, send, turn
from tests.core.clean_bench import COMPACT, clean, put
from tests.core.test_unreadable_batches import LIES, each_lie, store
from tests.core.test_unreadable_batches import read_all as read_on

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


# -- batches that nobody can read -------------------------------------------------------------------------------------


@each_lie
@pytest.mark.parametrize("last", [False, True])
def test_batches_that_nobody_can_read_are_taken_out(
    tmp_path: Path, case: str, last: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    data = tmp_path / "data"
    broker = opened(data)
    broker.create_topic("t", 1)
    for number in range(20):
        send(broker, "t", b"%d" % number + b"x" * 5_000)
        turn(broker)
    end = store(broker, "t", case)
    base = end - LIES[case][1]
    for number in range(0 if last else 20):
        send(broker, "t", b"%d" % number + b"y" * 5_000)
        turn(broker)
    partition = partition_of(broker, "t")
    next_offset = partition.next_offset
    good = [value for value in read_on(broker, "t") if value not in (None, b"a-lie")]
    assert len(good) == 20 + (0 if last else 20)
    broker.close()
    as_it_was = content(data)
    assert not verify(data).ok
    assert run(["log", "repair", str(data), "--yes"]) == 0
    assert f"unreadable: topic=t partition=0 offsets={base}-{end - 1}" in capsys.readouterr().out
    report = verify(data)
    assert (report.ok, report.unreadable) == (True, 0)
    assert repairing.examine(data).whole
    (kept,) = (data / "damaged").iterdir()
    segments = [path for path in kept.iterdir() if path.name.startswith("log-")]
    assert segments
    assert all(path.read_bytes() == as_it_was[path.name.replace("-", "/", 1)] for path in segments)
    for _ in range(2):
        broker = opened(data)
        partition = partition_of(broker, "t")
        assert broker.health() == [], "nothing is lost: nobody could read it"
        assert partition.next_offset == next_offset, "no offset is given out twice"
        assert [value for value in read_on(broker, "t") if value is not None] == good
        broker.close()
    broker = opened(data)
    assert send(broker, "t", b"later").base_offset == next_offset
    turn(broker)
    assert read_on(broker, "t", base)[-1] == b"later"
    broker.close()


def test_rot_beside_a_batch_that_nobody_can_read(tmp_path: Path) -> None:
    data = tmp_path / "data"
    broker = opened(data)
    broker.create_topic("t", 1)
    send(broker, "t", *[b"%d" % number for number in range(3)])
    store(broker, "t", "offset deltas 2, 1, 0")
    for number in range(40):
        send(broker, "t", b"%d" % number + b"x" * 5_000)
        turn(broker)
    partition = partition_of(broker, "t")
    row = next(run for run in partition.queue.runs()).columns.position[3]
    next_offset = partition.next_offset
    broker.close()
    with (data / segment_path(0)).open("r+b") as file:
        file.seek(row + 300)
        file.write(b"rot")
    findings = repairing.examine(data)
    assert [(each.low, each.high) for each in findings.lost] == [(7, 8)]
    assert [(each.low, each.high) for each in findings.unreadable] == [(3, 6)]
    repairing.repair(data, findings, "now")
    assert verify(data).ok
    broker = opened(data)
    partition = partition_of(broker, "t")
    assert partition.queue.damaged == [(7, 8)]
    assert [offset for offset, _ in read_all(broker, "t")] == [0, 1, 2, 6, *range(8, next_offset)]
    broker.close()


# -- compacted segments, and what is derived -------------------------------------------------------------------------


def compacted(data: Path) -> tuple[dict[int, bytes], Path]:
    broker = opened(data)
    broker.create_topic("t", 1, COMPACT)
    for number in range(200):
        put(broker, "t", (b"k%d" % (number % 50), b"v" * 900))
    clean(broker, CLOCK)
    (segment,) = broker.log.cleaned
    before = dict(read_all(broker, "t"))
    broker.close()
    return before, data / f"cleaned/{segment.start:020d}"


@pytest.mark.parametrize("at", [60, 5_000, 5_100])
def test_rot_in_a_compacted_segment(tmp_path: Path, at: int) -> None:
    data = tmp_path / "data"
    before, path = compacted(data)
    with path.open("r+b") as file:
        file.seek(at)
        file.write(b"rot" * 5)
    as_it_was = content(data)
    findings = repairing.examine(data)
    assert content(data) == as_it_was
    lost = {offset for each in findings.lost for offset in range(each.low, each.high)}
    assert bool(lost & before.keys()) == (at > 60)
    kept = repairing.repair(data, findings, "now")
    assert (kept / f"cleaned-{path.name}").read_bytes() == as_it_was[f"cleaned/{path.name}"]
    report = verify(data)
    assert report.ok, (report.problems, report.damaged)
    assert {f"log/{each.name}" for each in (data / "log").iterdir()} == {
        name for name in as_it_was if name.startswith("log/") and name != SPARE
    }
    broker = opened(data)
    assert dict(read_all(broker, "t")) == {offset: value for offset, value in before.items() if offset not in lost}
    for offset in lost & before.keys():
        with pytest.raises(BrokerError):
            broker.read(partition_of(broker, "t"), offset, 1 << 20, min_one=True)
    broker.close()


def test_files_that_are_derived_are_made_again(data: Path, before: Records, capsys: pytest.CaptureFixture[str]) -> None:
    fs = OsFileSystem(data, read_only=True)
    path = next(path for _, _, path in index_files.listed(fs))
    for victim in (path, snapshot.PATH):
        with (data / victim).open("r+b") as file:
            file.seek(-3, 2)
            file.write(b"rot")
    assert not verify(data).ok
    assert run(["log", "repair", str(data), "--yes"]) == 0
    said = capsys.readouterr().out
    assert f"to be made again: {path}\n" in said
    assert f"to be made again: {snapshot.PATH}\n" in said
    assert verify(data).ok
    broker = opened(data)
    assert {number: dict(read_all(broker, "t", number)) for number in range(2)} == before
    broker.close()


# -- who it is -------------------------------------------------------------------------------------------------------


def test_without_meta_json_the_node_gets_the_id_it_had(
    data: Path, before: Records, capsys: pytest.CaptureFixture[str]
) -> None:
    (data / "meta.json").unlink()
    assert run(["log", "repair", str(data), "--yes", "--node-id", "7"]) == 0
    assert "the node id 7" in capsys.readouterr().out
    broker = opened(data)
    assert broker.kernel.node_id == 7
    broker.close()
    assert repairing.examine(data, node_id=7).whole


@pytest.mark.parametrize("option", [["--node-id", "7"], ["--cluster-id", "kVv4Za1nTZqJ7bkA6p4rYw"]])
def test_a_whole_meta_json_is_not_replaced(data: Path, option: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    as_it_was = (data / "meta.json").read_bytes()
    assert run(["log", "repair", str(data), "--yes", *option]) == 1
    assert f"meta.json is whole and says that the {option[0][2:].replace('-', ' ')} is" in capsys.readouterr().err
    assert (data / "meta.json").read_bytes() == as_it_was
