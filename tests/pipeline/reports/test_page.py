"""halfmoon.pipeline.reports.page: the page holds every fact, opens alone, and takes no orders from a cell."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, timezone
from html.parser import HTMLParser
from pathlib import Path

import pytest

from halfmoon.pipeline.reports import page as page_module
from halfmoon.pipeline.reports.charts import CHARTS
from halfmoon.pipeline.reports.page import LONGEST_CELL, Section, write_page
from halfmoon.pipeline.reports.report import Report

AT = datetime(2026, 1, 31, 14, tzinfo=UTC)
LAG = Report(
    "lag_over_time",
    "Consumer lag",
    ("at", "group", "topic", "lag"),
    tuple((AT + timedelta(minutes=n), "payments", "orders", 1000 * n) for n in range(3)),
    3,
)
HOSTILE = (
    "<script>alert(1)</script>",
    "\"><img src=http://evil.example/x onerror='alert(1)'>",
    "</td></table></main>&amp;&lt;",
    "one\ntwo\r\nthree",
    "half a pair \udc80 and \x00 nothing",
    "]]><!-- </style> -->",
    "x" * 100_000,
)
VOID = {"meta", "link", "img", "br"}


class Page(HTMLParser):
    """What a browser would make of a page: elements with their attributes, and the text of each kind of element."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.source = path.read_text(encoding="utf-8")
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: dict[str, list[str]] = {}
        self.rows: list[list[tuple[str, str | None, str]]] = []
        self.feed(self.source)
        self.close()
        assert self.open == [], "elements are left open"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        self.texts.setdefault(tag, []).append("")
        if tag not in VOID:
            self.open.append(tag)
        if tag == "tr":
            self.rows.append([])
        elif tag in ("td", "th"):
            self.rows[-1].append((tag, dict(attrs).get("class"), ""))

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open:
            self.texts[self.open[-1]][-1] += data
        if self.open and self.open[-1] in ("td", "th"):
            tag, side, text = self.rows[-1][-1]
            self.rows[-1][-1] = tag, side, text + data

    def cells(self) -> list[list[str]]:
        return [[text for _, _, text in row] for row in self.rows]

    def values(self, *keys: str) -> list[str]:
        return [attrs[key] or "" for _, attrs in self.elements for key in keys if key in attrs]


def written(tmp_path: Path, *sections: Section, **others: object) -> Page:
    options: dict[str, object] = {
        "title": "Orders",
        "summary": [("success rate", "93.1 %")],
        "made_at": AT,
        "source": "topic orders",
    }
    options |= others
    path = tmp_path / "page.html"
    write_page(path, options.pop("title"), options.pop("summary"), sections, **options)  # type: ignore[arg-type]
    assert [entry.name for entry in tmp_path.iterdir()] == ["page.html"]
    return Page(path)


def section(report: Report, **others: object) -> Section:
    return Section(report, (CHARTS[report.name](report),), **others)  # type: ignore[arg-type]


def test_a_page_says_what_when_and_of_what(tmp_path: Path) -> None:
    made_at = datetime(2026, 1, 31, 16, 30, tzinfo=timezone(timedelta(hours=2)))
    facts = [("success rate", "93.1 %"), ("orders", "12,345")]
    page = written(tmp_path, section(LAG, note="From the log."), summary=facts, made_at=made_at)
    assert page.texts["title"] == page.texts["h1"] == ["Orders"]
    assert page.texts["p"] == ["topic orders · made 2026-01-31 14:30 UTC", "From the log."]
    assert list(zip(page.texts["dt"], page.texts["dd"], strict=True)) == facts
    assert page.texts["h2"] == ["Consumer lag"]
    assert page.texts["figure"] == [""]
    assert "Consumer lag over time" in page.texts["text"]


def test_every_cell_is_there(tmp_path: Path) -> None:
    report = Report(
        "mixed",
        "Mixed",
        ("window_start", "group", "p50_ms", "late_share", "letters"),
        ((AT, "a", 1.5, 0.25, 1_234_567), (AT.replace(tzinfo=None), None, None, None, 0)),
        2,
    )
    page = written(tmp_path, Section(report))
    assert page.cells() == [
        ["window start (UTC)", "group", "p50 (ms)", "late share", "letters"],
        ["2026-01-31 14:00", "a", "1.5", "25.0%", "1,234,567"],
        ["2026-01-31 14:00", "–", "–", "–", "0"],
    ]
    assert [[tag for tag, _, _ in row] for row in page.rows] == [["th"] * 5] + [["th", "th", "td", "td", "td"]] * 2
    assert all([side for _, side, _ in row] == [None, None, "n", "n", "n"] for row in page.rows)
    assert ".n { text-align: right" in page.source
    assert "position: sticky" in page.source
    assert [attrs.get("class") for tag, attrs in page.elements if tag == "div"][-1] == "scroll"


def test_a_long_table_is_cut_and_says_how_far_and_where_the_rest_is(tmp_path: Path) -> None:
    rows = tuple((n,) for n in range(12_345))
    page = written(tmp_path, Section(Report("late_payments", "Late", ("n",), rows, 0)))
    assert page.cells() == [["n"], *([str(n)] for n in range(200))]
    assert page.texts["span"] == ["13 of 12,345 rows; show 200", "200 of 12,345 rows; show 13"]
    assert page.texts["p"][-1] == "All 12,345 rows are in tables/late_payments.csv, .md and .parquet."
    assert "details:not([open]) + .scroll tbody tr:nth-child(n + 14) { display: none; }" in page.source
    whole = written(tmp_path, Section(Report("some", "Some", ("n",), rows[:188], 0)))
    assert whole.texts["span"] == ["13 of 188 rows; show all", "188 of 188 rows; show 13"]
    assert len(whole.rows) == 189
    tags = [tag for tag, _ in whole.elements]
    assert tags[tags.index("details") + 4] == "div", "the style of the rows is of a table right after it"


@pytest.mark.parametrize("count", [1, 13, 16])
def test_a_table_that_is_shown_whole_says_nothing_of_rows(count: int, tmp_path: Path) -> None:
    page = written(tmp_path, Section(Report("few", "Few", ("n",), tuple((n,) for n in range(count)), 0)))
    assert len(page.rows) == 1 + count
    assert "details" not in page.texts
    assert "rows" not in page.source.partition("<main>")[2]


def test_a_short_cut_says_so_too(tmp_path: Path) -> None:
    page = written(tmp_path, Section(Report("few", "Few", ("n",), ((1,), (2,), (3,), (4,)), 0), max_rows=3))
    assert len(page.rows) == 4
    assert page.texts["p"][-2:] == ["3 of 4 rows", "All 4 rows are in tables/few.csv, .md and .parquet."]


def test_a_report_without_rows_says_so(tmp_path: Path) -> None:
    page = written(tmp_path, section(Report("lag_over_time", "Lag", LAG.columns, (), 3)), summary=[])
    assert page.rows == []
    assert page.texts["p"][-1] == "No rows: nothing of this kind was seen."
    told = Report("lag_over_time", "Lag", LAG.columns, (), 3, "No group has committed an offset.")
    assert written(tmp_path, section(told)).texts["p"][-1] == told.if_empty
    assert "dl" not in page.texts


@pytest.mark.parametrize("text", HOSTILE)
def test_a_cell_is_text_whatever_it_holds(text: str, tmp_path: Path) -> None:
    report = Report(f"dlq_{text[:40]}", text, ("group", text), ((text, 1), ("after", 2)), 1)
    lag = Report("lag_over_time", text, LAG.columns, ((AT, text, text, 1),), 3)
    sections = [Section(report, note=text, max_rows=1), section(lag, note=text)]
    page = written(tmp_path, *sections, title=text, summary=[(text, text)], source=text)
    harmless = written(tmp_path, Section(LAG, note="x"), section(LAG, max_rows=1))
    kinds = {tag for tag, _ in page.elements}
    assert kinds == {tag for tag, _ in harmless.elements}
    assert not kinds & {"script", "img", "iframe", "object"}
    assert not any(key.startswith("on") for _, attrs in page.elements for key in attrs)
    shown = page.cells()[1][0]
    assert page.texts["h1"] == page.texts["title"] == page.texts["dd"] == [shown]
    assert len(shown) <= LONGEST_CELL
    if text.isprintable() and len(text) <= LONGEST_CELL:
        assert shown == text
    assert len(page.source) < 100_000


def test_line_ends_and_what_is_no_character_are_replaced(tmp_path: Path) -> None:
    rows = tuple((text,) for text in HOSTILE)
    page = written(tmp_path, Section(Report("r", "R", ("text",), rows, 0)))
    shown = [row[0] for row in page.cells()[1:]]
    assert shown[:3] == list(HOSTILE[:3])
    assert shown[3] == "one two three"
    assert shown[4] == "half a pair \ufffd and \ufffd nothing"
    assert shown[6] == "x" * 200 + "…" + "x" * 99


def test_the_page_needs_nothing_from_elsewhere(tmp_path: Path) -> None:
    page = written(tmp_path, *[section(LAG)] * 3, Section(LAG))
    links = page.values("href", "src", "xlink:href", "srcset", "action", "data", "poster")
    assert links
    assert all(link.startswith(("#", "data:")) for link in links)
    assert not re.search(r"https?:|//|@import|url\((?!#)", page.source)
    kinds = {tag for tag, _ in page.elements}
    assert not kinds & {"script", "link", "iframe", "img", "base"}
    metas = [attrs for tag, attrs in page.elements if tag == "meta"]
    assert metas[0] == {"charset": "utf-8"}
    assert metas[1]["name"] == "viewport"
    assert "default-src 'none'" in (metas[2]["content"] or "")
    assert page.source.startswith("<!DOCTYPE html>\n<html lang=")


def test_no_two_things_have_one_id(tmp_path: Path) -> None:
    page = written(tmp_path, *[section(LAG)] * 3)
    ids = page.values("id")
    assert len(ids) == len(set(ids)) > 6
    used = {value[1:] for value in page.values("href") if value.startswith("#")}
    for _, attrs in page.elements:
        for value in attrs.values():
            used.update(re.findall(r"url\(#(.+?)\)", value or ""))
    assert used == set(ids)


def test_a_page_is_the_old_one_until_the_new_one_is_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = written(tmp_path, section(LAG)).source
    monkeypatch.setattr(page_module, "escaped", lambda _: "\udc80")  # which fails late, while it is written
    with pytest.raises(UnicodeEncodeError):
        written(tmp_path, section(LAG), title="Another")
    assert [entry.read_text(encoding="utf-8") for entry in tmp_path.iterdir()] == [before]


def test_the_same_reports_are_the_same_page(tmp_path: Path) -> None:
    assert written(tmp_path, section(LAG)).source == written(tmp_path, section(LAG)).source


def test_it_has_a_dark_side_and_prints(tmp_path: Path) -> None:
    page = written(tmp_path)
    assert "@media screen and (prefers-color-scheme: dark)" in page.source
    assert "@media print" in page.source
    assert re.search(r"figure \{[^}]*background: #fff", page.source)
