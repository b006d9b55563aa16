"""Test suites that other people wrote for their clients, and a program that this project does not install.

`make interop` runs them. kafka-python's suite is downloaded on the first run; what it is expected to fail stands in
tools/interop_kafka_python.py, and why in docs/compatibility.md.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from halfmoon.testing import Broker
from tools import interop_kafka_python

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.interop


@pytest.mark.timeout(600)
def test_kafka_pythons_own_suite(capfd: pytest.CaptureFixture[str]) -> None:
    # It assigns new partitions to broker 0.
    with Broker(config={"topics": {"partitions": 4}, "node": {"id": 0}}) as broker:
        code = interop_kafka_python.main([broker.bootstrap_servers])
    out, err = capfd.readouterr()
    assert code == 0, out + err[-5_000:]
    print(out)


@pytest.mark.timeout(300)
def test_kcat() -> None:
    """tests/clients/test_kcat.py, which is skipped where there is no kcat: here that is a failure."""
    assert shutil.which("kcat") or shutil.which("kafkacat"), "kcat is not installed (Debian: apt-get install kcat)"
    command = [sys.executable, "-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider", "tests/clients/test_kcat.py"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
    assert "passed" in done.stdout
    assert "skipped" not in done.stdout
