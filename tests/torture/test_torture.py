"""As many scenarios as 40 s hold, always the same ones. `make torture SEEDS=1000` plays new ones."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SECONDS = 40


def torture(*arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONHASHSEED": "0"}
    command = [sys.executable, "-m", "tests.torture", *arguments]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)


@pytest.mark.timeout(300)
def test_promises_are_kept_whatever_happens() -> None:
    done = torture("--first", "0", "--seconds", str(SECONDS))
    print(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr
    assert " 0 failed" in done.stdout


@pytest.mark.timeout(120)
def test_the_same_seed_makes_the_same_history() -> None:
    first, second = (torture("--seed", "5", "--steps", "5") for _ in range(2))
    assert first.stdout == second.stdout, first.stderr
    assert "fate: " in first.stdout
