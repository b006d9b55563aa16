"""What is read of a process."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest

from benchmarks import readings

SPUN_S = 0.05


def test_cpu_of_another_process_counts_all_its_threads() -> None:
    spin = (
        "import sys, threading, time\n"
        "def spin():\n"
        f"    while time.thread_time() < {SPUN_S}: pass\n"
        "one = threading.Thread(target=spin); one.start(); one.join()\n"
        "print(time.process_time(), flush=True); sys.stdin.read()\n"
    )
    command = [sys.executable, "-c", spin]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        said_s = float(process.stdout.readline())
        first_s = readings.cpu_s(process.pid)
        assert first_s >= said_s > SPUN_S
        process.communicate("")
    with pytest.raises(OSError, match="Invalid argument"):
        readings.cpu_s(process.pid)


def test_little_work_shows() -> None:
    before_s = readings.cpu_s(os.getpid())
    ended_ns = time.perf_counter_ns() + 1_000_000
    while time.perf_counter_ns() < ended_ns:
        pass
    assert readings.cpu_s(os.getpid()) > before_s
