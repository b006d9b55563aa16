"""Runs a transcript: a command, `----`, what is said to it, an empty line; and so on. Lines with `#` are comments."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest


def transcripts(kind: str, module: str) -> pytest.MarkDecorator:
    """Runs a test with the `path` of each transcript whose name begins so, in `transcripts` beside the test's module
    (its `__file__`)."""
    paths = sorted((Path(module).parent / "transcripts").glob(f"{kind}_*.txt"))
    assert paths, f"no transcripts of {kind}"
    return pytest.mark.parametrize("path", paths, ids=lambda path: path.stem)


def check(path: Path, run: Callable[[str], list[str]]) -> None:
    """What `run` says to each command is what stands there; or is written there, with HALFMOON_REWRITE."""
    said: list[str] = []
    expected = path.read_text(encoding="utf-8").splitlines()
    lines = iter(expected)
    for line in lines:
        said.append(line)
        if not line or line.startswith("#"):
            continue
        assert next(lines, "----") == "----", f"no ---- after {line!r}"
        said.append("----")
        said += run(line)
        for old in lines:
            if not old:
                break
        said.append("")
    while said and not said[-1]:
        said.pop()
    if os.environ.get("HALFMOON_REWRITE"):
        path.write_text("\n".join(said) + "\n", encoding="utf-8")
        return
    assert said == expected
