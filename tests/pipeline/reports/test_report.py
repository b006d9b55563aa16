"""halfmoon.pipeline.reports.report: the files say what the rows say."""

from __future__ import annotations

import csv
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from halfmoon.pipeline.reports import report as report_module
from halfmoon.pipeline.reports.report import (
    Report,
    cell_formats,
    heading,
    headings,
    markdown,
    numeric,
    one_line,
    percent,
    save,
    show,
    shown,
    whole_file,
)

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


def test_points_in_time_keep_their_kind(tmp_path: Path) -> None:
    at = datetime(2026, 1, 31, 14, 0, 0, 250_000)
    rows = ((at, at.replace(tzinfo=UTC)), (at + timedelta(hours=1), None))
    timed = Report("times", "Times", ("naive_at", "aware_at"), rows, 1)
    parquet, comma, marked = save(timed, tmp_path)
    assert pq.read_table(parquet).to_pylist() == timed.dicts()
    assert comma.read_text().splitlines()[1] == "2026-01-31 14:00:00.250000,2026-01-31 14:00:00.250000+00:00"
    assert marked.read_text().splitlines()[2:] == [
        "| naive at (UTC) | aware at (UTC) |",
        "| --- | --- |",
        "| 2026-01-31 14:00 | 2026-01-31 14:00 |",
        "| 2026-01-31 15:00 | – |",
    ]


def test_a_report_without_rows_has_files_with_its_columns(tmp_path: Path) -> None:
    parquet, comma, marked = save(Report("none", "None", ("at", "letters"), (), 1), tmp_path)
    table = pq.read_table(parquet)
    assert (table.column_names, table.num_rows) == (["at", "letters"], 0)
    assert comma.read_text() == "at,letters\n"
    assert marked.read_text().splitlines()[2:] == [
        "| at | letters |",
        "| --- | --- |",
        "",
        "No rows: nothing of this kind was seen.",
    ]


def test_text_of_any_kind_is_saved(tmp_path: Path) -> None:
    reason = "first\nsecond\r\n| third \udcff \x00 ä"
    odd = Report("odd", "Odd\ntitle", ("reason", "letters"), ((reason, 1),), 1)
    parquet, comma, marked = save(odd, tmp_path)
    stored = reason.replace("\udcff", "\\udcff")
    assert pq.read_table(parquet).to_pylist() == [{"reason": stored, "letters": 1}]
    with comma.open(newline="", encoding="utf-8") as lines:
        assert list(csv.reader(lines))[1:] == [[stored, "1"]]
    lines_of_it = marked.read_text(encoding="utf-8").splitlines()
    assert lines_of_it[0] == "# Odd title"
    assert lines_of_it[4:] == ["| first second \\| third \ufffd \ufffd ä | 1 |"]


def test_a_file_is_the_old_one_until_the_new_one_is_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save(REPORT, tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    changed = Report("r", "Routes", REPORT.columns, REPORT.rows[:1], 1)
    monkeypatch.setattr(report_module, "markdown", lambda _: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        save(changed, tmp_path)
    after = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert after.keys() == before.keys() == {"r.parquet", "r.csv", "r.md"}
    assert after["r.csv"] == b"origin,flights,mean_delay_min\r\nJFK,1234,2.5\r\n"
    assert after["r.md"] == before["r.md"]


def test_a_part_of_a_file_is_hidden_and_never_stays(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    with whole_file(path) as part:
        part.write_text("new")
        assert part.parent == tmp_path
        assert part.name.startswith(".")
        assert not path.exists()
    with path.open() as reading:
        with whole_file(path) as part:
            part.write_text("newer")
        assert reading.read() == "new", "the file was written over, not replaced"
    assert path.read_text() == "newer"

    def killed() -> None:
        with whole_file(path) as part:
            part.write_text("half")
            raise KeyError

    with pytest.raises(KeyError):
        killed()
    assert [entry.name for entry in tmp_path.iterdir()] == ["a.txt"]
    assert path.read_text() == "newer"


def test_columns_of_numbers() -> None:
    mixed = Report(
        "m", "", ("n", "text", "none", "flag", "share"), ((1, "a", None, True, 0.5), (None, 2, None, 1, 1)), 1
    )
    assert numeric(mixed) == [True, False, False, False, True]


@pytest.mark.parametrize(
    ("column", "text"),
    [
        ("mean_dep_delay_min", "mean dep delay (min)"),
        ("late_share", "late share"),
        ("min", "min"),
        ("month", "month"),
        ("p50_ms", "p50 (ms)"),
        ("wait_s", "wait (s)"),
        ("s", "s"),
    ],
)
def test_headings_give_the_unit(column: str, text: str) -> None:
    assert heading(column) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "–"),
        (0.123, "0.12"),
        (12.34, "12.3"),
        (10.0, "10"),
        (0.0, "0"),
        (12345, "12,345"),
        ("x", "x"),
        ("a|b\nc", "a|b c"),
        (True, "yes"),
        (datetime(2026, 1, 31, 14, 0), "2026-01-31 14:00"),
        (datetime(2026, 1, 31, 14, 0, 5), "2026-01-31 14:00:05"),
        (datetime(2026, 1, 31, 14, 0, tzinfo=timezone(timedelta(hours=-11))), "2026-02-01 01:00"),
    ],
)
def test_values(value: object, text: str) -> None:
    assert show(value) == text


@pytest.mark.parametrize(
    ("values", "texts"),
    [
        ((16.904, 0.69, 0.0, None), ["16.90", "0.69", "0.00", "–"]),
        ((16.904, -2.0, 0.0, 3), ["16.9", "-2.0", "0.0", "3.0"]),
        ((10.0, -4.0, 1200.0), ["10", "-4", "1,200"]),
        ((datetime(2026, 1, 31, 14), datetime(2026, 1, 31, 14, 0, 5)), ["2026-01-31 14:00:00", "2026-01-31 14:00:05"]),
        (
            (datetime(2026, 1, 31, 14), datetime(2026, 1, 31, 14, 0, 0, 250_000)),
            ["2026-01-31 14:00:00.000", "2026-01-31 14:00:00.250"],
        ),
        ((float("nan"), float("inf"), 2.5), ["nan", "inf", "2.5"]),
        ((10.0, 0.001), ["10.000", "0.001"]),
        ((0.00004, 0.01), ["0.000", "0.010"]),
        ((1234.0, 5), ["1,234", "5"]),
    ],
)
def test_a_column_has_one_format(values: tuple[object, ...], texts: list[str]) -> None:
    report = Report("r", "", ("n",), tuple((value,) for value in values), 0)
    assert [cell for [cell] in shown(report)] == texts


def test_a_column_has_the_same_format_wherever_some_of_its_rows_are_shown() -> None:
    rows = tuple((n, float(n) if n else 0.25, datetime(2026, 1, 31, 14, 0, n)) for n in range(3))
    report = Report("r", "", ("n", "mean_ms", "at"), rows, 1)
    assert list(shown(report, slice(-1, None))) == [["2", "2.00", "2026-01-31 14:00:02"]]
    assert list(shown(report, slice(2))) == list(shown(report))[:2]
    formats = cell_formats(report)
    assert [formats["mean_ms"](value) for value in report.column("mean_ms")] == ["0.25", "1.00", "2.00"]
    assert markdown(report).splitlines()[-1] == "| 2 | 2.00 | 2026-01-31 14:00:02 |"


def test_the_name_of_a_column_says_that_it_is_a_share() -> None:
    assert [show(value, "late_share") for value in (0.9312, 1, None, "?")] == ["93.1%", "100.0%", "–", "?"]
    assert show(0.9312, "shares") == "0.93"


@pytest.mark.parametrize(
    ("share", "text"),
    [(0, "0.0%"), (1, "100.0%"), (0.9994, "99.9%"), (0.99996, "> 99.9%"), (0.0004, "< 0.1%"), (0.0006, "0.1%")],
)
def test_a_share_is_not_rounded_to_all_or_nothing(share: float, text: str) -> None:
    assert percent(share) == text


def test_headings_of_points_in_time_say_utc() -> None:
    timed = Report("t", "", ("window_start", "p50_ms"), ((None, 1.0), (datetime(2026, 1, 31), 2.0)), 1)
    assert headings(timed) == ["window start (UTC)", "p50 (ms)"]


def test_a_long_text_keeps_both_ends() -> None:
    assert one_line("abcdefghij", 10) == "abcdefghij"
    assert one_line("abcdefghijk", 10) == "abcdef…ijk"
    assert len(one_line("x" * 99, 32)) == 32
    assert one_line(" a\t\u2028b\ue000 \x1b[1m\ud83d ") == "a b\ue000 \ufffd[1m\ufffd"
