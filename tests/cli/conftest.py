"""The command line run inside the test process: fast, and with coverage. What needs a process has one (`program`)."""

from __future__ import annotations

import io
import itertools
import json
import logging
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from halfmoon.cli.main import INTERRUPTED, run
from halfmoon.testing import Broker

_numbers = itertools.count()


@pytest.fixture(autouse=True)
def _own_logging() -> Iterator[None]:
    """A command that is a broker logs to the stderr of its test, which is closed for the next one."""
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a command left behind."""

    code: int
    out: str
    err: str

    def json(self) -> Any:
        return json.loads(self.out)

    def json_lines(self) -> list[Any]:
        return [json.loads(line) for line in self.out.splitlines()]

    def failed_with(self, code: int) -> str:
        """The one line it ended with; checks that it is one line, and that nothing looks like a traceback."""
        assert self.code == code, self
        assert self.err.startswith("halfmoon: ")
        assert self.err.count("\n") == 1
        assert "Traceback" not in self.err
        return self.err.strip()


class CommandLine:
    def __init__(self, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
        self._capsys = capsys
        self._monkeypatch = monkeypatch

    def __call__(self, *arguments: str, stdin: bytes = b"") -> Outcome:
        self._monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        self._capsys.readouterr()
        code = run(arguments)
        if code == INTERRUPTED:
            # Ctrl-C was meant for the test run; the command line took it.
            raise KeyboardInterrupt
        out, err = self._capsys.readouterr()
        return Outcome(code, out, err)

    def ok(self, *arguments: str, stdin: bytes = b"") -> Outcome:
        outcome = self(*arguments, stdin=stdin)
        assert outcome.code == 0, outcome
        return outcome


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> CommandLine:
    """`cli("topic", "list")` → Outcome; `cli.ok(...)` where it has to succeed. It knows of no broker."""
    for variable in ("HALFMOON_BOOTSTRAP_SERVER", "HALFMOON_NAMESRV", "NAMESRV_ADDR"):
        monkeypatch.delenv(variable, raising=False)
    return CommandLine(capsys, monkeypatch)


@pytest.fixture
def broker_cli(cli: CommandLine, bootstrap_servers: str, monkeypatch: pytest.MonkeyPatch) -> CommandLine:
    """`cli`, at a broker."""
    monkeypatch.setenv("HALFMOON_BOOTSTRAP_SERVER", bootstrap_servers)
    return cli


@pytest.fixture(scope="session")
def rocketmq_broker() -> Iterator[Broker]:
    """A broker that speaks both protocols; topics that are made by sending have four queues."""
    listeners = {"rocketmq": {"bind": "127.0.0.1:0", "namesrv": "127.0.0.1:0"}}
    with Broker(config={"listeners": listeners, "topics": {"partitions": 4}}) as broker:
        yield broker


@pytest.fixture
def name() -> str:
    """A topic or group name that no other test has, nor an earlier run against the same broker."""
    return f"cli-{os.getpid()}-{next(_numbers)}"


@pytest.fixture
def topic(broker_cli: CommandLine, name: str) -> Iterator[str]:
    """A topic with one partition. It keeps for ever: a real Kafka would delete records of 1970, as tests like them."""
    broker_cli.ok("topic", "create", name, "-p", "1", "-c", "retention.ms=-1")
    yield name
    broker_cli("topic", "delete", name)


@pytest.fixture
def program(bootstrap_servers: str) -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    """Start `halfmoon ARGUMENT...` as a process with pipes; none outlives the test."""
    started: list[subprocess.Popen[bytes]] = []

    def start(*arguments: str) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            [sys.executable, "-m", "halfmoon", *arguments],
            env={**os.environ, "HALFMOON_BOOTSTRAP_SERVER": bootstrap_servers},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        if process.poll() is None:
            process.kill()
        process.communicate()
