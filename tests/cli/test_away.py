"""`consume` while the broker is away: said at once, and the next record comes within a second of its return."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from halfmoon.cli.away import AwayWatch
from halfmoon.testing import Broker


class Lines:
    """What a process, or a watch, says, and when."""

    def __init__(self) -> None:
        self.said: list[tuple[float, str]] = []

    def __call__(self, line: str) -> None:
        self.said.append((time.monotonic(), line))

    def read(self, stream: Iterator[str]) -> None:
        for line in stream:
            self(line)

    def wait(self, pattern: str, after: int = 0) -> float:
        """When a line was said that matches."""
        deadline = time.monotonic() + 60
        while True:
            for at, line in self.said[after:]:
                if re.search(pattern, line):
                    return at
            assert time.monotonic() < deadline, (pattern, self.said)
            time.sleep(0.01)


def on(folder: Path, port: int) -> Broker:
    return Broker(data_dir=str(folder), config={"listeners": {"kafka": {"bind": f"127.0.0.1:{port}"}}})


@contextmanager
def consuming(*arguments: str) -> Iterator[tuple[Lines, Lines, subprocess.Popen[str]]]:
    process = subprocess.Popen(
        [sys.executable, "-m", "halfmoon", "consume", *arguments],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    out, err = Lines(), Lines()
    assert process.stdout is not None
    assert process.stderr is not None
    threads = [
        threading.Thread(target=lines.read, args=(stream,))
        for lines, stream in ((out, process.stdout), (err, process.stderr))
    ]
    for thread in threads:
        thread.start()
    try:
        yield out, err, process
    finally:
        process.kill()
        process.wait()
        for thread in threads:
            thread.join()
        process.stdout.close()
        process.stderr.close()


@pytest.mark.parametrize("mode", [(), ("--group", "readers")])
def test_a_broker_that_goes_and_comes_back(tmp_path: Path, mode: tuple[str, ...], cli: object) -> None:
    port = free_port()
    with on(tmp_path, port) as broker:
        send(broker, "one")
        with consuming("t", "-b", broker.bootstrap_servers, *mode) as (out, err, process):
            out.wait("one")
            broker.stop()
            err.wait(rf"^halfmoon: no broker answers at 127\.0\.0\.1:{port}: .*; waiting for it$")
            time.sleep(3)  # so that pauses between attempts have grown
            assert process.poll() is None
            with on(tmp_path, port) as again:
                back = err.wait("^halfmoon: the broker is back$")
                send(again, "two")
                sent = time.monotonic()
                # A second is what a person sees; a machine that is busy may take some.
                assert out.wait("two") - max(back, sent) < 10
            assert [line for _, line in err.said if "waiting" not in line and "back" not in line] == []


def send(broker: Broker, value: str) -> None:
    subprocess.run(
        [sys.executable, "-m", "halfmoon", "produce", "t", value, "-b", broker.bootstrap_servers],
        check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port


def test_a_connection_that_ends_is_no_news_where_another_can_be_made() -> None:
    lines = Lines()
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with AwayWatch([("there", ("127.0.0.1", port))], lines):
            for _ in range(3):
                connection, _ = server.accept()
                connection.close()
            last, _ = server.accept()
            last.close()
    assert lines.said == []


def test_one_of_several_is_enough() -> None:
    lines = Lines()
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = server.getsockname()
        nobody = ("nobody", ("127.0.0.1", free_port()))
        with AwayWatch([nobody, ("there", address)], lines):
            connection, _ = server.accept()
            connection.close()
    assert lines.said == []
