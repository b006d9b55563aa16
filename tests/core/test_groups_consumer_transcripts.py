"""Runs the transcripts of `transcripts/consumer_*.txt`: a command, `----`, and exactly what the coordinator said. The
commands are listed in consumer_script.

    HALFMOON_REWRITE=1 pytest tests/core/test_groups_consumer_transcripts.py     writes what it says now; read the diff
"""

from __future__ import annotations

import logging
import os
from pathlib import Path

import pytest

from tests.core.consumer_script import Script

TRANSCRIPTS = sorted((Path(__file__).parent / "transcripts").glob("consumer_*.txt"))
REWRITE = bool(os.environ.get("HALFMOON_REWRITE"))


@pytest.mark.parametrize("path", TRANSCRIPTS, ids=lambda path: path.stem)
def test_transcript(path: Path) -> None:
    logging.getLogger("halfmoon.core.groups.consumer.targets").setLevel(logging.CRITICAL)
    script = Script()
    said: list[str] = []
    expected = path.read_text(encoding="utf-8").splitlines()
    lines = iter(expected)
    for line in lines:
        said.append(line)
        if not line or line.startswith("#"):
            continue
        assert next(lines, "----") == "----", f"no ---- after {line!r}"
        said.append("----")
        said += script.run(line)
        for old in lines:
            if not old:
                break
        said.append("")
    while said and not said[-1]:
        said.pop()
    if REWRITE:
        path.write_text("\n".join(said) + "\n", encoding="utf-8")
        return
    assert said == expected


def test_there_are_transcripts() -> None:
    assert TRANSCRIPTS
