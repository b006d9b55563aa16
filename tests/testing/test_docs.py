"""The examples of docs/testing.md, each run as a test module of its own."""

from __future__ import annotations

import importlib.metadata
import os
import re
from pathlib import Path

import pytest

pytest_plugins = ["pytester"]

ROOT = Path(__file__).parents[2]
EXAMPLES = re.findall(
    r"<!-- test: pytest -->\n```python\n(.*?)```", (ROOT / "docs" / "testing.md").read_text(encoding="utf-8"), re.DOTALL
)


def test_there_are_examples() -> None:
    assert len(EXAMPLES) >= 4


@pytest.mark.parametrize("number", range(len(EXAMPLES)))
def test_an_example(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]))
    if "halfmoon" not in {entry.name for entry in importlib.metadata.entry_points(group="pytest11")}:
        pytester.makeconftest("pytest_plugins = ['halfmoon.testing.pytest_plugin']")
    pytester.makepyfile(EXAMPLES[number])
    pytester.runpytest_subprocess("-q").assert_outcomes(passed=1)
