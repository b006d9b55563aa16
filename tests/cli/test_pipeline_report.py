"""halfmoon.cli.pipeline_report: what a report looks like on the terminal. (tests/spark runs the commands.)"""

from __future__ import annotations

import pytest

from halfmoon.cli.pipeline_report import SHOWN_ROWS, _print
from halfmoon.cli.spark import steps_shown
from halfmoon.pipeline.reports.report import Report
from halfmoon.pipeline.steps import Step
from tests.cli.test_output import Terminal

COLUMNS = ("group", "letters", "wait_s", "success_share")


def test_a_column_has_one_format_and_its_numbers_stand_to_the_right(capsys: pytest.CaptureFixture[str]) -> None:
    rows = (("billing", 12_345, 7200, 0.9), ("post", 7, 0.25, 0.99999), (None, None, None, None))
    _print(Report("dlq_by_group", "Dead letters", COLUMNS, rows, 1))
    assert capsys.readouterr().out.splitlines() == [
        "",
        "Dead letters",
        "GROUP    LETTERS    WAIT-S  SUCCESS-SHARE",
        "billing   12,345  7,200.00          90.0%",
        "post           7      0.25        > 99.9%",
        "–              –         –              –",
    ]


def test_of_a_long_table_the_last_rows_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    rows = tuple((f"g{n}", n, 0.5 if n == 0 else 2.0, 1.0) for n in range(SHOWN_ROWS + 1))
    _print(Report("dlq_by_group", "Dead letters", COLUMNS, rows, 1))
    _, _, said, _, first, *others = capsys.readouterr().out.splitlines()
    assert said == "(the last 20 of 21 rows; all are in tables/dlq_by_group.parquet)"
    assert first.split() == ["g1", "1", "2.00", "100.0%"], "as in the files, which have the row with a half"
    assert len(others) == SHOWN_ROWS - 1


def test_steps_are_shown_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Terminal()
    monkeypatch.setattr("sys.stderr", screen)
    with steps_shown("dlq") as on_step:
        on_step(Step(("Reading the topics", "Dead letters by group"), 1, 200, 200, "tasks"))
    assert "dlq: Reading the topics · 200 of 200 tasks" in screen.getvalue()
    assert "0/2" in screen.getvalue(), "there may be another stage"
    assert "1/2" not in screen.getvalue()


def test_steps_are_not_shown_elsewhere(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    with steps_shown("dlq") as on_step:
        on_step(Step(("Reading the topics",), 1))
    assert capsys.readouterr().err == ""
    screen = Terminal()
    monkeypatch.setattr("sys.stderr", screen)
    with steps_shown("lag", wanted=False) as on_step:
        on_step(Step(("Asking the groups",), 1))
    assert screen.getvalue() == ""
