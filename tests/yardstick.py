"""How much processor time a command takes, beside that of a fixed piece of work: a slow machine slows both."""

from __future__ import annotations

import resource
import subprocess
import sys
from collections.abc import Sequence

WORK = "import argparse, asyncio, email.message, http.client, json, logging.config; sum(range(1_000_000))"
"""Imports and a loop, as what a program does when it starts: 0.1 s of a processor of 2023."""
TIMES = 4


def yardsticks(command: Sequence[str]) -> float:
    """How many times as long as `WORK` the command takes, start of the interpreter included. The shortest of some runs
    counts of either, taken in turn: what else the machine has to do only adds."""
    pairs = [(_processor_time([sys.executable, "-c", WORK]), _processor_time(command)) for _ in range(TIMES)]
    return min(took for _, took in pairs) / min(work for work, _ in pairs)


def _processor_time(command: Sequence[str]) -> float:
    """Seconds, user and system, of the command and its children."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
