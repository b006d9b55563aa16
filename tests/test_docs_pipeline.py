"""docs/pipeline.md from top to bottom: its marked commands and programs do what it says."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from halfmoon.pipeline.jobs.archive_files import MESSAGE_COLUMNS
from halfmoon.pipeline.reports.success_rate import Rules

ROOT = Path(__file__).parents[1]
DOCS = (ROOT / "docs/pipeline.md").read_text(encoding="utf-8")

_BLOCK = re.compile(r"<!-- test: (\w+) -->\n```\w+\n(.*?)```", re.DOTALL)

pytestmark = [
    pytest.mark.spark,
    pytest.mark.timeout(400),
    # pyspark leaves the sockets it collects results through to the garbage collector.
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
]


def test_from_top_to_bottom(
    spark: object, bootstrap_servers: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """The commands as a shell runs them, then the programs, one after the other, in one process."""
    script = tmp_path / "halfmoon"
    script.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m halfmoon "$@"\n')
    script.chmod(0o755)
    monkeypatch.setenv("HALFMOON_BOOTSTRAP_SERVER", bootstrap_servers)
    environment = {**os.environ, "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
    blocks = _BLOCK.findall(DOCS)
    commands = [text for name, text in blocks if name == "run"]
    programs = [text for name, text in blocks if name == "python"]
    assert len(commands) == 3
    assert len(programs) >= 6
    printed = [
        subprocess.run(["/bin/sh", "-e", "-c", each], env=environment, cwd=tmp_path, stdout=subprocess.PIPE, text=True,
                       check=True).stdout
        for each in commands
    ]  # fmt: skip
    said = dict(zip(*(line.split() for line in printed[0].splitlines()), strict=True))
    assert f"missing        {said['MISSING']}\n" in printed[1], "the report says what is true"
    assert (tmp_path / "out/success-rate.html").exists()
    assert re.search(rf"^orders +orders\.again +{said['RECORDS']} +0 ", printed[2], re.MULTILINE)
    namespace: dict[str, object] = {}
    for program in programs:
        exec(program, namespace)
    shown = capsys.readouterr().out
    assert "TagC" in shown or "TagA" in shown
    assert "Subscribe[orders.sql.TAGS-TagB-AND-status-paid." in shown
    assert "avg(amount)" in shown


def test_rules_and_columns_are_those_it_names() -> None:
    rules = Rules()
    assert (rules.pay_within, rules.late_within, rules.watermark) == ("15 minutes", "2 hours", "30 minutes")
    for column in ("key", "value", "headers", "offset", "timestamp"):
        assert f"{column} " in MESSAGE_COLUMNS


def test_links_lead_somewhere() -> None:
    links = re.findall(r"\]\((?!https?:)([^)#]+)\)", DOCS)
    assert links
    assert [link for link in links if not (ROOT / "docs" / link).exists()] == []
