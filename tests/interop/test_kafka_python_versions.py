"""Halfmoon beside each kafka-python that it may be installed with: what uses it, and the messages.

2.2.0    the lowest of pyproject.toml, and 2.3.3, the last 2.3: they have another admin client and other assignors
3.0.0    the first with its own event loop
newest   constraints.txt, which `make test` runs
"""

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
NOT = {
    "3.0.0": (
        # Up to 3.0.4 it cannot encode a Produce request that ends within 3 bytes of 64 KiB times a power of two, which
        # this one does: docs/compatibility.md. It is told after two minutes, as a time-out.
        "tests/cli/test_produce.py::test_a_record_too_large_is_refused_in_one_line",
    ),
}
MOST_S = 1_200

pytestmark = [pytest.mark.interop, pytest.mark.timeout(MOST_S)]


def lowest() -> str:
    dependencies = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    (bound,) = [each for each in dependencies if each.startswith("kafka-python")]
    found = re.fullmatch(r"kafka-python>=([\d.]+),<4", bound)
    assert found is not None, bound
    return found[1]


def newest() -> str:
    """Which `make test` runs."""
    found = re.search(r"^kafka-python==([\d.]+)$", (ROOT / "constraints.txt").read_text(), re.MULTILINE)
    assert found is not None
    return found[1]


BESIDE = ("2.2.0", "2.3.3", "3.0.0")


def test_the_ends_of_the_range_are_tried() -> None:
    assert lowest() == BESIDE[0]
    assert tuple(map(int, newest().split("."))) > (3, 0, 0)


@pytest.mark.parametrize("version", BESIDE)
def test_an_older_kafka_python(version: str, tmp_path: Path) -> None:
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(tmp_path)]
    subprocess.run([*install, f"kafka-python=={version}"], check=True)
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    loaded = [sys.executable, "-W", "ignore", "-c", "import kafka; print(kafka.__version__)"]
    said = subprocess.run(loaded, env=environment, capture_output=True, text=True, check=True).stdout
    assert said.strip() == version, "another kafka-python stands before it"
    left_out = [part for test in NOT.get(version, ()) for part in ("--deselect", test)]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "not interop", *left_out]
    done = subprocess.run(
        [*command, *SELECTION], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout[-8_000:]
    assert "skipped" not in done.stdout.splitlines()[-1]
