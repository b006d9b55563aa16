"""Whole files as records, and records as files."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from tests.cli.conftest import CommandLine


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Path]:
    contents = {"a.txt": b"one\ntwo\n", "b.bin": bytes(range(256)), "empty": b"", "c d.json": b'{"n": 1}'}
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)
    return {name: tmp_path / name for name in contents}


def test_each_file_is_a_record(broker_cli: CommandLine, topic: str, files: dict[str, Path]) -> None:
    paths = [str(path) for path in files.values()]
    sent = broker_cli.ok("produce", topic, "--file", *paths, "-k", "all", "-H", "source=disk")
    assert sent.out == f"4 records to {topic} (partition 0)\n"
    read = broker_cli.ok("consume", topic, "-e", "-o", "json").json_lines()
    assert [record["key"] for record in read] == ["all"] * 4
    assert [record["headers"] for record in read] == [[{"name": "source", "value": "disk"}]] * 4
    assert [record.get("value") for record in read] == ["one\ntwo\n", None, "", '{"n": 1}']


def test_there_and_back(broker_cli: CommandLine, topic: str, files: dict[str, Path], tmp_path: Path) -> None:
    broker_cli.ok("produce", topic, "--file", "--key-from-name", *map(str, files.values()))
    target = tmp_path / "new" / "folder"
    printed = broker_cli.ok("consume", topic, "-e", "--to-files", str(target), "--file-name", "%k").out
    assert printed.splitlines() == [str(target / name) for name in files]
    assert {path.name: path.read_bytes() for path in target.iterdir()} == {
        name: path.read_bytes() for name, path in files.items()
    }
    mask = os.umask(0)
    os.umask(mask)
    assert {stat.S_IMODE(path.stat().st_mode) for path in target.iterdir()} == {0o666 & ~mask}


def test_stdin_is_a_file_too(broker_cli: CommandLine, topic: str) -> None:
    broker_cli.ok("produce", topic, "--file", "-", stdin=b"one\ntwo\n")
    assert broker_cli.ok("consume", topic, "-e", "-f", "[%s]").out == "[one\ntwo\n]"


def test_files_of_json_records(broker_cli: CommandLine, topic: str, tmp_path: Path) -> None:
    (tmp_path / "record.json").write_text('{"key": "k",\n "value": "v"}')
    broker_cli.ok("produce", topic, "--file", "--json", str(tmp_path / "record.json"))
    assert broker_cli.ok("consume", topic, "-e", "-f", "%k=%s").out == "k=v"
    (tmp_path / "bad.json").write_text("no")
    said = broker_cli("produce", topic, "--file", "--json", str(tmp_path / "bad.json")).failed_with(1)
    assert said.startswith(f"halfmoon: {tmp_path / 'bad.json'}: not a JSON record")


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--file"], "--file: specify the files; - is stdin"),
        (["--file", "/nowhere/x"], "/nowhere/x: there is no such file"),
        (["--file", "/"], "/ is a directory"),
        (["--key-from-name", "x"], "--key-from-name goes with --file"),
        (["--file", "--key-from-name", "-k", "x", "/dev/null"], "--key and --key-from-name exclude each other"),
    ],
)
def test_a_wrong_command_line_sends_nothing(cli: CommandLine, flags: list[str], said: str) -> None:
    assert said in cli("produce", "t", *flags, "-b", "127.0.0.1:1").failed_with(2)


def test_a_file_that_is_too_large_is_named(broker_cli: CommandLine, topic: str, tmp_path: Path) -> None:
    (tmp_path / "small").write_bytes(b"x")
    (tmp_path / "large").write_bytes(os.urandom(3 << 20))
    broker_cli.ok("topic", "alter", topic, "-c", "max.message.bytes=100000")
    said = broker_cli("produce", topic, "--file", str(tmp_path / "small"), str(tmp_path / "large")).failed_with(1)
    assert said.startswith(f"halfmoon: {tmp_path / 'large'}: ")
    assert broker_cli.ok("consume", topic, "-e", "-f", "%s").out == "x"


def test_by_default_a_file_is_called_after_its_place(broker_cli: CommandLine, topic: str, tmp_path: Path) -> None:
    broker_cli.ok("produce", topic, "a", "b")
    broker_cli.ok("produce", topic, "-Z", "-K", ":", "gone:")
    read = broker_cli.ok("consume", topic, "-e", "--to-files", str(tmp_path))
    assert read.out.splitlines() == [f"{tmp_path}/{topic}-0-0", f"{tmp_path}/{topic}-0-1"]
    assert read.err == f"halfmoon: {topic}/0/2: the record has no value; no file is written\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"{topic}-0-0", f"{topic}-0-1"]
    rows = broker_cli.ok("consume", topic, "-e", "--to-files", str(tmp_path), "-o", "json").json_lines()
    assert [(row["offset"], row["file"], "value" in row) for row in rows] == [
        (0, f"{tmp_path}/{topic}-0-0", False), (1, f"{tmp_path}/{topic}-0-1", False), (2, None, False)
    ]  # fmt: skip


def test_no_key_leads_out_of_the_directory(broker_cli: CommandLine, topic: str, tmp_path: Path) -> None:
    inner = tmp_path / "inner"
    broker_cli.ok("produce", topic, "v", "-k", "../../etc/x")
    broker_cli.ok("produce", topic, "w", "-k", "/abs")
    broker_cli.ok("consume", topic, "-e", "--to-files", str(inner), "--file-name", "%k")
    assert sorted(path.name for path in inner.iterdir()) == [".._.._etc_x", "_abs"]
    assert [path.name for path in tmp_path.iterdir()] == ["inner"]
    broker_cli.ok("produce", topic, "x", "-k", "..")
    said = broker_cli("consume", topic, "--last", "1", "--to-files", str(inner), "--file-name", "%k").failed_with(1)
    assert said == f"halfmoon: {topic}/0/2: no file can be called '..' (--file-name)"
    broker_cli.ok("produce", topic, "y", "-k", "k" * 300)
    said = broker_cli("consume", topic, "--last", "1", "--to-files", str(inner), "--file-name", "%k").failed_with(1)
    assert "at most 255 bytes, not 300" in said


def test_a_later_record_replaces_a_file(broker_cli: CommandLine, topic: str, tmp_path: Path) -> None:
    broker_cli.ok("produce", topic, "old", "new", "-k", "k")
    broker_cli.ok("consume", topic, "-e", "--to-files", str(tmp_path), "--file-name", "%k.txt")
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"k.txt": "new"}


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--to-files", "/tmp/x", "-f", "%k"], "--format and --to-files exclude each other"),
        (["--to-files", "/tmp/x", "--file-name", "%y"], "%y is not a field"),
    ],
)
def test_a_wrong_way_to_write_files(cli: CommandLine, flags: list[str], said: str) -> None:
    assert said in cli("consume", "t", *flags, "-b", "127.0.0.1:1").failed_with(2)
