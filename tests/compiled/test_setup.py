"""setup.py where no C compiler works."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    copy = tmp_path_factory.mktemp("checkout")
    ignored = shutil.ignore_patterns("__pycache__", "_*.c", "*.so")
    shutil.copytree(ROOT / "halfmoon", copy / "halfmoon", ignore=ignored)
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, copy)
    return copy


def build(checkout: Path, asked: str | None) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name != "HALFMOON_COMPILE"}
    environment |= {"CC": "false"} | ({} if asked is None else {"HALFMOON_COMPILE": asked})
    command = [sys.executable, "setup.py", "--quiet", "build_ext", "--build-lib", "built"]
    return subprocess.run(command, cwd=checkout, env=environment, capture_output=True, text=True, check=False)


def lines(said: subprocess.CompletedProcess[str]) -> list[str]:
    return [line for line in said.stderr.splitlines() if line.startswith("halfmoon: ")]


def test_nothing_is_compiled_and_one_line_says_so(checkout: Path) -> None:
    said = build(checkout, None)
    assert said.returncode == 0, said.stderr
    (line,) = lines(said)
    assert line.startswith("halfmoon: nothing is compiled, the same code runs in Python: no C compiler works here (")
    assert list((checkout).rglob("*.so")) == []


def test_whoever_asks_for_it_gets_an_error(checkout: Path) -> None:
    said = build(checkout, "1")
    assert said.returncode != 0
    (line,) = lines(said)
    assert line.startswith("halfmoon: HALFMOON_COMPILE=1, and no C compiler works here: ")


def test_whoever_asks_for_none_hears_nothing(checkout: Path) -> None:
    said = build(checkout, "0")
    assert said.returncode == 0, said.stderr
    assert lines(said) == []
    assert list((checkout).rglob("*.so")) == []
