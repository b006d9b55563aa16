"""halfmoon.pipeline.reports.report: the files say what the rows say."""

from __future__ import annotations

import csv
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from halfmoon.pipeline.reports.report import Report, heading, markdown, save, show

REPORT = Report("r", "Routes", ("origin", "flights", "mean_delay_min"), (("JFK", 1_234, 2.5), ("a|b", 7, None)), 1)


def test_markdown() -> None:
    assert markdown(REPORT).splitlines() == [
        "# Routes",
        "",
        "| origin | flights | mean delay (min) |",
        "| --- | ---: | ---: |",
        "| JFK | 1,234 | 2.5 |",
        "| a\\|b | 7 | – |",
    ]


def test_files_hold_the_rows(tmp_path: Path) -> None:
    parquet, comma, marked = save(REPORT, tmp_path / "new")
    assert pq.read_table(parquet).to_pylist() == REPORT.dicts()
    with comma.open(newline="") as lines:
        assert list(csv.reader(lines)) == [list(REPORT.columns), ["JFK", "1234", "2.5"], ["a|b", "7", ""]]
    assert marked.read_text() == markdown(REPORT)


@pytest.mark.parametrize(
    ("column", "text"),
    [("mean_dep_delay_min", "mean dep delay (min)"), ("late_share", "late share"), ("min", "min"), ("month", "month")],
)
def test_headings_give_the_unit(column: str, text: str) -> None:
    assert heading(column) == text


@pytest.mark.parametrize(
    ("value", "text"), [(None, "–"), (0.123, "0.12"), (12.34, "12.3"), (12345, "12,345"), ("x", "x")]
)
def test_values(value: object, text: str) -> None:
    assert show(value) == text
