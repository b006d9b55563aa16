"""halfmoon.pipeline.reports.drawing: pictures that can stand in one page, and ticks that say when."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import matplotlib as mpl
import pytest
from matplotlib.dates import date2num
from matplotlib.figure import Figure

from halfmoon.pipeline.reports.drawing import DPI, frame, label, legend_above, nothing, save_png, styled, svg, time_axis


def chart(text: str = "a line") -> Figure:
    """With markers, clipping and an image, which are what an SVG gives ids to."""
    with styled():
        figure = Figure(figsize=(4, 3), layout="constrained")
        axes = figure.add_subplot()
        axes.plot([1, 2, 3], [1, 4, 2], marker="o", label=text)
        axes.imshow([[1, 2], [3, 4]], extent=(1, 2, 1, 2))
        legend_above(axes)
        axes.set_ylabel("two\nlines")
        frame(figure, "The title", "and more of it")
    return figure


class Ids(HTMLParser):
    """The ids of some HTML, and what refers to them."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.ids: list[str] = []
        self.used: set[str] = set()
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        for key, value in attrs:
            if key == "id":
                self.ids.append(value or "")
            elif key == "href" and (value or "").startswith("#"):
                self.used.add((value or "")[1:])
            else:
                self.used.update(re.findall(r"url\(#(.+?)\)", value or ""))


def test_an_svg_is_one_element_without_addresses() -> None:
    text = svg(chart())
    assert text.startswith("<svg ")
    assert text.endswith("</svg>")
    root = ElementTree.fromstring(text)
    assert (root.tag, root.attrib["role"], root.attrib["aria-label"]) == ("svg", "img", "The title")
    assert root.attrib["viewBox"] == "0 0 288 216"
    assert not re.search(r"https?:|xmlns|<!|<\?|<metadata|<style", text)
    images = [element.attrib["href"] for element in root.iter("image")]
    assert [href[:22] for href in images] == ["data:image/png;base64,"]


def test_text_stays_text_in_a_font_that_all_have() -> None:
    root = ElementTree.fromstring(svg(chart()))
    texts = {element.text: element.attrib["style"] for element in root.iter("text")}
    assert {"The title", "and more of it", "a line"} <= texts.keys()
    assert all("'DejaVu Sans', 'Verdana', sans-serif" in style for style in texts.values())


def test_charts_of_one_page_share_no_ids() -> None:
    page = Ids(svg(chart(), "one") + svg(chart(), "two") + svg(chart("another")) + svg(chart("a third")))
    assert page.tags.count("svg") == 4
    assert len(page.ids) == len(set(page.ids)) >= 4
    assert set(page.ids) == page.used
    assert {name.split("-")[0] for name in page.ids} >= {"one", "two"}


def test_equal_charts_are_equal_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = chart()
    text = svg(first)
    assert svg(first) == text
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "86400")
    assert svg(chart()) == text
    save_png(first, tmp_path / "first.png", "the source")
    assert svg(first) == text
    assert svg(chart("another")) != text


def test_names_are_neither_markup_nor_formulas() -> None:
    hostile = "<script>'\"&amp; $x^2$ _y_ 漢字"
    text = svg(chart(hostile))
    assert "<script" not in text
    assert hostile in [element.text for element in ElementTree.fromstring(text).iter("text")]


def test_a_png_is_written_whole_and_leaves_the_figure_alone(tmp_path: Path) -> None:
    figure = chart()
    texts = [text.get_text() for text in figure.texts]
    save_png(figure, tmp_path / "chart.png", "the source")
    [path] = tmp_path.iterdir()
    data = path.read_bytes()
    assert data.startswith(b"\x89PNG")
    assert (int.from_bytes(data[16:20]), int.from_bytes(data[20:24])) == (4 * DPI, 3 * DPI)
    assert [text.get_text() for text in figure.texts] == texts


def test_the_style_ends_with_the_block() -> None:
    before = mpl.rcParams["svg.fonttype"], mpl.rcParams["font.size"]
    with styled():
        assert (mpl.rcParams["svg.fonttype"], mpl.rcParams["text.parse_math"]) == ("none", False)
    assert (mpl.rcParams["svg.fonttype"], mpl.rcParams["font.size"]) == before


def test_a_chart_without_rows_says_so() -> None:
    figure = nothing("Lag")
    assert figure.axes == []
    title, sentence = figure.texts
    assert title.get_text() == "Lag"
    assert "no rows" in sentence.get_text()


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "–"), (7, "7"), ("a\nb\x00\udc80", "a b\ufffd\ufffd"), ("x" * 50, "x" * 21 + "…" + "x" * 10)],
)
def test_labels(value: object, text: str) -> None:
    assert label(value) == text


@pytest.mark.parametrize(
    ("start", "span", "ticks"),
    [
        ("2026-01-31 14:00", timedelta(0), "14:00/31 Jan 2026"),
        ("2026-01-31 14:03", timedelta(milliseconds=20), "14:03/31 Jan 2026"),
        ("2026-01-31 14:00:07", timedelta(seconds=3), "14:00:07/31 Jan 2026, 14:00:08, 14:00:09, 14:00:10"),
        (
            "2026-01-31 22:00",
            timedelta(hours=4),
            "22:00/31 Jan 2026, 22:30, 23:00, 23:30, 00:00/01 Feb, 00:30, 01:00, 01:30, 02:00",
        ),
        (
            "2026-01-31 21:10",
            timedelta(hours=8),
            "22:00/31 Jan 2026, 23:00, 00:00/01 Feb, 01:00, 02:00, 03:00, 04:00, 05:00",
        ),
        (
            "2026-12-30 05:00",
            timedelta(days=3),
            "12:00/30 Dec 2026, 00:00/31 Dec, 12:00, 00:00/01 Jan 2027, 12:00, 00:00/02 Jan",
        ),
        ("2026-12-28 00:00", timedelta(days=6), "28 Dec/2026, 29 Dec, 30 Dec, 31 Dec, 01 Jan/2027, 02 Jan, 03 Jan"),
        ("2026-02-27 05:00", timedelta(days=9), "28 Feb/2026, 02 Mar, 04 Mar, 06 Mar, 08 Mar"),
        (
            "2024-01-01 00:00",
            timedelta(days=731),
            "01 Jan/2024, 02 Apr, 03 Jul, 03 Oct, 03 Jan/2025, 05 Apr, 06 Jul, 06 Oct",
        ),
    ],
)
def test_ticks_say_what_the_one_before_does_not(start: str, span: timedelta, ticks: str) -> None:
    """A slash stands for the end of a line."""
    first = datetime.fromisoformat(start).replace(tzinfo=UTC)
    axes = Figure().add_subplot()
    time_axis(axes, date2num(first), date2num(first + span))
    assert [tick.get_text().replace("\n", "/") for tick in axes.get_xticklabels()] == ticks.split(", ")
    assert axes.get_xlabel() == "time (UTC)"
