"""Halfmoon beside the oldest kafka-python that it may be installed with: what uses it, and the messages."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SELECTION = (
    "tests/adapters/kafka/test_imports.py", "tests/adapters/kafka/test_wire.py", "tests/kafka", "tests/kafka_wire",
    "tests/cli/test_consume.py", "tests/cli/test_dlq.py", "tests/cli/test_group.py", "tests/cli/test_main.py",
    "tests/cli/test_produce.py", "tests/cli/test_reset.py", "tests/cli/test_topic.py", "tests/cli/test_view.py",
)  # fmt: skip
"""What tests clients with kafka-python's newest admin client is left out: it is the client that is tested there."""
MOST_S = 1_200

pytestmark = [pytest.mark.interop, pytest.mark.timeout(MOST_S)]


def lowest() -> str:
    dependencies = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    (bound,) = [each for each in dependencies if each.startswith("kafka-python")]
    found = re.fullmatch(r"kafka-python>=([\d.]+),<\d+", bound)
    assert found is not None, bound
    return found[1]


def test_the_oldest_kafka_python(tmp_path: Path) -> None:
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(tmp_path)]
    subprocess.run([*install, f"kafka-python=={lowest()}"], check=True)
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    loaded = [sys.executable, "-W", "ignore", "-c", "import kafka; print(kafka.__version__)"]
    said = subprocess.run(loaded, env=environment, capture_output=True, text=True, check=True).stdout
    assert said.strip().startswith(lowest()), "another kafka-python stands before it"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "not interop", *SELECTION]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-8_000:]
    assert "skipped" not in done.stdout.splitlines()[-1]
