"""Some of the tests of clients and of the command line once more, with a broker of two processes."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.several_workers import VARIABLE

ROOT = Path(__file__).parents[3]
SUITES = ("tests/clients", "tests/cli")


@pytest.mark.timeout(240)
@pytest.mark.skipif(VARIABLE in os.environ, reason="this run has such brokers itself")
def test_what_is_marked_passes_and_both_have_partitions_and_groups() -> None:
    """`make test-workers` runs them all."""
    outer = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_XDIST")}
    command = [sys.executable, "-m", "pytest", "-m", "workers", "-q", "-p", "no:cacheprovider", *SUITES]
    ran = subprocess.run(command, env={**outer, VARIABLE: "2"}, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout[-10_000:] + ran.stderr[-2_000:]
    assert int(re.findall(r"^(\d+) tests ran with one$", ran.stdout, re.MULTILINE)[0]) > 30, ran.stdout
    assert re.search(r"^partitions: \d+ on node 1, \d+ on node 2$", ran.stdout, re.MULTILINE), ran.stdout
