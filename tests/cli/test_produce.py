from __future__ import annotations

import array
import fcntl
import re
import select
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.cli.conftest import CommandLine


def test_values_of_the_command_line(broker_cli: CommandLine, topic: str) -> None:
    assert broker_cli.ok("produce", topic, "a", "b").out == f"2 records to {topic} (partition 0)\n"
    assert broker_cli.ok("consume", topic, "-e").out == "a\nb\n"


def test_lines_of_stdin_with_keys(broker_cli: CommandLine, topic: str) -> None:
    broker_cli.ok("produce", topic, "-K", ":", stdin=b"k1:v1\nno key\n:v:3")
    assert broker_cli.ok("consume", topic, "-e", "-f", "%k(%K)=%s%n").out == "k1(2)=v1\n(-1)=no key\n(0)=v:3\n"


def test_empty_is_null_where_asked(broker_cli: CommandLine, topic: str) -> None:
    broker_cli.ok("produce", topic, "-K", ":", "-Z", stdin=b":v\nk:\n")
    assert broker_cli.ok("consume", topic, "-e", "-f", "%K,%S%n").out == "-1,1\n1,-1\n"
    assert broker_cli("produce", topic, "-Z", stdin=b"\n").failed_with(1) == (
        "halfmoon: record 1: neither a key nor a value"
    )


def test_another_delimiter(broker_cli: CommandLine, topic: str) -> None:
    broker_cli.ok("produce", topic, "-D", r"\x00", stdin=b"two\nlines\0next\0")
    assert broker_cli.ok("consume", topic, "-e", "-f", "[%s]").out == "[two\nlines][next]"


def test_key_headers_time_and_partition(broker_cli: CommandLine, name: str) -> None:
    broker_cli.ok("topic", "create", name, "-p", "3")
    flags = ["-k", "K", "-H", "a=1", "-H", "b=x=y", "-p", "2", "-t", "2013-01-01T00:00"]
    broker_cli.ok("produce", name, "v", *flags)
    (record,) = broker_cli.ok("consume", name, "-e", "-o", "json").json_lines()
    assert (record["partition"], record["key"], record["timestamp"]) == (2, "K", 1_356_998_400_000)
    assert record["headers"] == [{"name": "a", "value": "1"}, {"name": "b", "value": "x=y"}]
    broker_cli.ok("topic", "delete", name)


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_every_codec_there_and_back(broker_cli: CommandLine, topic: str, codec: str) -> None:
    broker_cli.ok("produce", topic, "-z", codec, stdin=b"x" * 2000 + b"\ny\n")
    assert broker_cli.ok("consume", topic, "-e").out == "x" * 2000 + "\ny\n"


def test_json_says_where_each_record_went(broker_cli: CommandLine, topic: str) -> None:
    answers = broker_cli.ok("produce", topic, "a", "b", "-t", "5", "-o", "json").json_lines()
    assert answers == [{"topic": topic, "partition": 0, "offset": n, "timestamp": 5} for n in (0, 1)]


def test_what_consume_prints_as_json_can_be_produced(broker_cli: CommandLine, topic: str) -> None:
    broker_cli.ok("produce", topic, "-K", ":", "-Z", "-H", "h=1", "-t", "7", stdin=b"k:\xff\xfe\nk2:\n")
    first = broker_cli.ok("consume", topic, "-e", "-o", "json")
    broker_cli.ok("produce", topic, "--json", stdin=first.out.encode())
    both = broker_cli.ok("consume", topic, "-e", "-o", "json").json_lines()
    copies = [{**record, "offset": record["offset"] - 2} for record in both[2:]]
    assert copies == both[:2] == first.json_lines()


@pytest.mark.parametrize("line", [b"{", b"[]", b'{"value": 7}', b'{"value_base64": "?"}', b'{"headers": [{}]}'])
def test_json_that_is_no_record(broker_cli: CommandLine, topic: str, line: bytes) -> None:
    assert "record 1: not a JSON record" in broker_cli("produce", topic, "--json", stdin=line).failed_with(1)


def test_a_partition_that_is_not_there(broker_cli: CommandLine, topic: str) -> None:
    assert "record 1: Unrecognized partition" in broker_cli("produce", topic, "x", "-p", "7").failed_with(1)


def test_a_record_too_large_is_refused_in_one_line(broker_cli: CommandLine, topic: str) -> None:
    assert "record 1: MESSAGE_SIZE_TOO_LARGE" in broker_cli("produce", topic, stdin=b"x" * 5_000_000).failed_with(1)


def test_ctrl_c_says_how_many_were_acknowledged(program: Callable[..., subprocess.Popen[bytes]], topic: str) -> None:
    process = program("produce", topic, "-o", "json")
    assert process.stdin is not None
    assert process.stdout is not None
    # Answers are printed as further records come: one that is printed says that it is up and running.
    while not select.select([process.stdout], [], [], 0.1)[0]:
        process.stdin.write(b"more\n")
        process.stdin.flush()
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=20)
    said = re.fullmatch(rb"halfmoon: interrupted: (\d+) records? to (\S+) acknowledged\n", err)
    assert process.returncode == 130
    assert said is not None, err
    assert (int(said[1]), said[2].decode()) == (out.count(b"\n"), topic)


@pytest.fixture
def other_broker(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A broker of the test's own, as a process, and its address."""
    with subprocess.Popen(
        [sys.executable, "-m", "halfmoon", "serve", "--data-dir", str(tmp_path), "--kafka", "127.0.0.1:0"],
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        yield process, process.stdout.readline().split()[1].removeprefix("kafka=")
        process.kill()


def test_ctrl_c_counts_what_has_no_answer(
    program: Callable[..., subprocess.Popen[bytes]], other_broker: tuple[subprocess.Popen[str], str]
) -> None:
    serving, address = other_broker
    process = program("produce", "interrupted", "-o", "json", "-b", address)
    assert process.stdin is not None
    assert process.stdout is not None
    while not select.select([process.stdout], [], [], 0.1)[0]:
        process.stdin.write(b"more\n")
        process.stdin.flush()
    serving.send_signal(signal.SIGSTOP)
    process.stdin.write(b"lost\n" * 2000)
    process.stdin.flush()
    deadline = time.monotonic() + 30
    while _unread(process.stdin.fileno()) and time.monotonic() < deadline:
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    said = re.search(rb"interrupted: (\d+) records? to interrupted acknowledged; (\d+) sent without an answer\n", err)
    assert process.returncode == 130
    assert said is not None, err
    assert int(said[1]) == out.count(b"\n") > 0
    assert int(said[2]) >= 1000


def _unread(pipe: int) -> int:
    """Bytes that stand in a pipe."""
    found = array.array("i", [0])
    fcntl.ioctl(pipe, termios.FIONREAD, found)
    return found[0]


def test_a_topic_that_is_created_is_said(broker_cli: CommandLine, name: str) -> None:
    created = broker_cli.ok("produce", name, "a", "b")
    assert re.fullmatch(rf"{name}: created, with \d+ partitions?\n", created.err)
    assert broker_cli.ok("produce", name, "c").err == ""
    broker_cli.ok("topic", "delete", name)
    assert broker_cli.ok("produce", name, stdin=b"").err == "", "nothing to send creates nothing"
    assert "UNKNOWN_TOPIC_OR_PARTITION" in broker_cli("topic", "describe", name).failed_with(1)
