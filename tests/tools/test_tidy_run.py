"""Nothing outlives tools/tidy_run.py. Grandchildren hold the writing end of a pipe: its end says that they are gone."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from collections.abc import Collection, Iterator
from pathlib import Path

import pytest

TIDY_RUN = Path(__file__).parents[2] / "tools/tidy_run.py"

LEAVES_A_CHILD = """
import subprocess, sys, os
subprocess.Popen([sys.executable, "-c", "import time; print('up', flush=True); time.sleep(600)"], pass_fds=[1])
"""
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
WAITS = "import time; time.sleep(600)"


class Tidied:
    def __init__(self, *command: str, ignores: Collection[int] = ()) -> None:
        """Whatever whoever runs the tests ignores, as nohup does: this ignores these signals, and no other."""

        def dispose() -> None:
            for number in SIGNALS:
                signal.signal(number, signal.SIG_IGN if number in ignores else signal.SIG_DFL)

        self.output, writing = os.pipe()
        self.process = subprocess.Popen(
            [sys.executable, str(TIDY_RUN), *command], stdout=writing, stderr=writing, preexec_fn=dispose
        )
        os.close(writing)

    def read(self) -> bytes:
        return os.read(self.output, 1000)

    def is_up(self) -> bool:
        """Whether the command says `up`, as ours do when they are ready. May come in pieces."""
        said = b""
        while said != b"up\n" and b"up\n".startswith(said):
            said += self.read()
        return said == b"up\n"

    def everybody_is_gone(self) -> bool:
        """Whether the pipe has ended: nobody of the whole family has it open any more."""
        while select.select([self.output], [], [], 10)[0]:
            if not self.read():
                return True
        return False


@pytest.fixture
def started() -> Iterator[list[Tidied]]:
    all_started: list[Tidied] = []
    yield all_started
    for tidied in all_started:
        tidied.process.kill()
        tidied.process.wait()
        os.close(tidied.output)


def test_the_exit_code_is_the_commands(started: list[Tidied]) -> None:
    started.append(Tidied(sys.executable, "-c", "raise SystemExit(7)"))
    assert started[0].process.wait(timeout=20) == 7


def test_what_a_command_leaves_running_is_ended(started: list[Tidied]) -> None:
    started.append(Tidied(sys.executable, "-c", LEAVES_A_CHILD + "sys.stdin.read()"))
    assert started[0].process.wait(timeout=20) == 0
    assert started[0].everybody_is_gone()


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_ends_the_command_and_what_it_started(started: list[Tidied], number: signal.Signals) -> None:
    started.append(Tidied(sys.executable, "-c", LEAVES_A_CHILD + WAITS))
    assert started[0].is_up()
    started[0].process.send_signal(number)
    assert started[0].process.wait(timeout=20) == 128 + number
    assert started[0].everybody_is_gone()


def test_what_is_ignored_under_nohup_is_ignored(started: list[Tidied]) -> None:
    started.append(Tidied(sys.executable, "-c", LEAVES_A_CHILD + WAITS, ignores=[signal.SIGHUP]))
    assert started[0].is_up()
    started[0].process.send_signal(signal.SIGHUP)
    with pytest.raises(subprocess.TimeoutExpired):
        started[0].process.wait(timeout=0.5)
    started[0].process.send_signal(signal.SIGTERM)
    assert started[0].process.wait(timeout=20) == 128 + signal.SIGTERM
    assert started[0].everybody_is_gone()


def test_a_second_signal_does_not_wait(started: list[Tidied]) -> None:
    deaf = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True);" + WAITS
    started.append(Tidied(sys.executable, "-c", deaf))
    assert started[0].is_up()
    started[0].process.send_signal(signal.SIGTERM)
    with pytest.raises(subprocess.TimeoutExpired):
        started[0].process.wait(timeout=0.5)
    started[0].process.send_signal(signal.SIGTERM)
    assert started[0].process.wait(timeout=10) == 128 + signal.SIGKILL


def test_a_command_that_is_not_there(started: list[Tidied]) -> None:
    started.append(Tidied("/nonexistent/command"))
    assert started[0].process.wait(timeout=20) == 127
    assert started[0].read() == b"halfmoon: cannot run /nonexistent/command: No such file or directory\n"
