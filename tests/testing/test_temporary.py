"""No directory is left behind, however the test's process ends, or whatever becomes of a broker in it."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from halfmoon.testing import Broker, temporary

STARTS = """
import os, signal, sys
from halfmoon.testing import Broker

def main():
    broker = Broker({}).start()
    broker.produce("t", "one")
    print(broker.data_dir, flush=True)
    {}

main()
"""
WAY_OF_ENDING = {
    "falls off its end": "",
    "is told to end": "sys.stdin.read()",
    "is killed": "sys.stdin.read() ",
    "fails": "raise ValueError",
    "exits at once": "os._exit(3)",
}


def folder_of(script: str, ends: str) -> Path:
    """Of a broker in a process that has ended so."""
    command = [sys.executable, "-c", script]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        folder = Path(process.stdout.readline().decode().strip())
        assert folder.is_dir()
        if ends == "is told to end":
            process.send_signal(signal.SIGTERM)
        elif ends == "is killed":
            process.kill()
        _, said = process.communicate(timeout=60)
        expected = b"ValueError" if ends == "fails" else b""
        assert (expected in said) if expected else not said
    return folder


def gone(folder: Path) -> None:
    until_s = time.monotonic() + 30
    while folder.exists() or folder.parent.exists():
        assert time.monotonic() < until_s
        time.sleep(0.02)


@pytest.mark.parametrize("ends", WAY_OF_ENDING)
def test_the_process(ends: str) -> None:
    gone(folder_of(STARTS.format("", WAY_OF_ENDING[ends]), ends))


@pytest.mark.parametrize("ends", ["falls off its end", "is killed"])
def test_with_several_processes(ends: str) -> None:
    gone(folder_of(STARTS.format("workers=2", WAY_OF_ENDING[ends]), ends))


def test_nothing_is_left_in_the_temporary_folder(tmp_path: Path) -> None:
    script = "from halfmoon.testing import Broker\nfor _ in range(3):\n    Broker(secure=True).start()"
    subprocess.run([sys.executable, "-c", script], env={**os.environ, "TMPDIR": str(tmp_path)}, check=True, timeout=60)
    assert not list(tmp_path.iterdir())


def test_a_broker_that_nobody_has_any_more() -> None:
    before = threading.active_count()
    broker = Broker().start()
    folder = Path(broker.data_dir)
    assert threading.active_count() > before
    del broker
    gc.collect()
    until_s = time.monotonic() + 30
    while folder.exists() or threading.active_count() > before:
        assert time.monotonic() < until_s
        time.sleep(0.02)


def test_processes_that_nobody_has_any_more() -> None:
    broker = Broker(workers=2).start()
    folder = Path(broker.data_dir)
    del broker
    gc.collect()
    assert not folder.exists()


def test_a_directory_that_was_given_stays(tmp_path: Path) -> None:
    broker = Broker(data_dir=str(tmp_path / "data")).start()
    broker.produce("t", "one")
    del broker
    gc.collect()
    until_s = time.monotonic() + 30
    while any(thread.name == "halfmoon-broker" and thread.daemon for thread in threading.enumerate()):
        if time.monotonic() > until_s:
            break
        time.sleep(0.02)
    with Broker(data_dir=str(tmp_path / "data")) as again:
        assert [each.value for each in again.records("t")] == [b"one"]


def test_a_fork_removes_nothing_of_its_parents() -> None:
    folder = temporary.make()
    pid = os.fork()
    if not pid:
        try:
            temporary._remove_at_the_end(os.getppid(), folder)
            ours = temporary.make()
            os._exit(0 if ours.parent != folder.parent else 1)
        finally:
            os._exit(2)
    assert os.waitpid(pid, 0)[1] == 0
    assert folder.is_dir()
    temporary.remove(folder)
