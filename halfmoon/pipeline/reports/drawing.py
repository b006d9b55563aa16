"""What all charts look like: colours, type, the frame of title and subtitle, and the two ways out, PNG and SVG.

Colours: Okabe and Ito's set and matplotlib's cividis and magma, all fit for colour-blind readers and legible in grey.

A chart is a matplotlib Figure made under `styled()`; pyplot, which keeps every figure it ever made, is not used.
"""

from __future__ import annotations

import hashlib
import io
import re
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from math import ceil
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.dates import num2date
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import Formatter, FuncFormatter, MaxNLocator

from halfmoon.pipeline.reports.report import one_line, whole_file

BLUE, ORANGE, GREEN, VERMILION, GREY = "#0072B2", "#E69F00", "#009E73", "#D55E00", "#9A9A9A"
SKY, PURPLE, YELLOW = "#56B4E9", "#CC79A7", "#F0E442"
SERIES = (BLUE, ORANGE, GREEN, VERMILION, SKY, PURPLE, YELLOW)
"""For things that have no order and no meaning of their own; GREY is left for all others together."""

LINE: dict[str, Any] = {"linewidth": 1.8, "markeredgewidth": 0, "clip_on": False}
"""Not clipped, since half of a line along the ground would be lost behind the axis."""

MOST_BARS = 120
"""Windows of a chart over time; more share bars."""

DPI = 144

_MINUTE_S, _HOUR_S, DAY_S = 60, 3600, 86_400
HANDY_S = (
    *(1, 2, 5, 10, 15, 30),
    *(n * _MINUTE_S for n in (1, 2, 5, 10, 15, 30)),
    *(n * _HOUR_S for n in (1, 2, 3, 6, 12)),
    *(n * DAY_S for n in (1, 2, 7, 14, 28)),
)
"""Steps of time that a reader reckons with, in seconds."""

_STYLE: dict[str, Any] = {
    "font.size": 11,
    # Verdana is as wide as DejaVu Sans, so an SVG keeps its layout where the latter is not installed.
    "font.sans-serif": ["DejaVu Sans", "Verdana", "sans-serif"],
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#666666",
    "axes.titlesize": 12,
    "axes.titlelocation": "left",
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#E4E4E4",
    "figure.facecolor": "white",
    "legend.frameon": False,
    # Names of topics and groups stand in labels; a dollar sign in them begins no formula.
    "text.parse_math": False,
    "svg.fonttype": "none",
    "svg.hashsalt": "halfmoon",
}


@contextmanager
def styled() -> Iterator[None]:
    """Figures made, and also saved, in here look like the others: matplotlib makes ticks only when it draws them."""
    with mpl.rc_context(_STYLE), warnings.catch_warnings():
        # A sign that no font here has is drawn as a box; in an SVG the reader's own fonts draw it.
        warnings.filterwarnings("ignore", r"Glyph \d+ .* missing from", UserWarning)
        yield


def frame(figure: Figure, title: str, subtitle: str) -> None:
    """Title and subtitle at the top left, room for the source at the foot; both are measured in inches, not shares."""
    height = figure.get_figheight()
    engine = figure.get_layout_engine()
    assert isinstance(engine, ConstrainedLayoutEngine)
    engine.set(rect=(0.008, 0.3 / height, 0.984, 1 - 1.15 / height))
    figure.text(0.012, 1 - 0.13 / height, title, va="top", fontsize=15, fontweight="bold")
    figure.text(0.012, 1 - 0.47 / height, subtitle, va="top", fontsize=10.5, color="#555555")
    figure.set_label(title)


def nothing(title: str, why: str = "The report has no rows: nothing of this kind was seen.") -> Figure:
    """The chart of a report without rows, or without any that can be drawn: a title, and a sentence instead of axes."""
    figure = Figure(figsize=(11, 1.6), layout="constrained")
    frame(figure, title, why)
    return figure


def label(value: object, longest: int = 32) -> str:
    """A name as text for a chart: one line of at most `longest` characters, the middle left out; None is a dash."""
    text = "–" if value is None else one_line(str(value), longest)
    # matplotlib leaves what begins with an underscore out of legends; a space without width comes before it.
    return f"\u200b{text}" if text.startswith("_") else text


def many(count: int, what: str) -> str:
    return f"{count:,} {what}" if count == 1 else f"{count:,} {what}s"


def marker_size(points: int) -> float:
    """Points are marked where there is room; among many only one that stands alone shows, as wide as the line."""
    return 5.5 if points <= 60 else 1.8


def time_axis(axes: Axes, first: float, last: float, most: int = 9) -> None:
    """The horizontal axis is time in UTC, in matplotlib's days; at most `most` ticks stand from `first` to `last`.

    A tick says of its date what the one before it does not say: the first one all, one at midnight the day.
    """
    at = _ticks(first, last, most)
    daily = len(at) > 1 and at[1] - at[0] > 0.999
    moments = [num2date(day, UTC) for day in at]
    before = [None, *moments]
    axes.set_xticks(at, [_tick(moment, one, daily) for moment, one in zip(moments, before, strict=False)])
    axes.set_xlabel("time (UTC)")


def _ticks(first: float, last: float, most: int) -> list[float]:
    """At most `most` points from `first` to `last`, where a clock or a calendar has its marks, or else `first`."""
    if first == last or most < 2:
        return [first]
    span_s = round((last - first) * DAY_S, 1)  # a day as a float is not exact
    steps = most - 1
    step_s = next((step for step in HANDY_S if span_s / step <= steps), ceil(span_s / steps / DAY_S) * DAY_S)
    base_s = min(step_s, DAY_S)
    start_s = ceil(round(first * DAY_S, 1) / base_s) * base_s
    return [second / DAY_S for second in range(start_s, round(last * DAY_S) + 1, step_s)] or [first]


def _tick(moment: datetime, before: datetime | None, daily: bool) -> str:
    year = f"{moment:%Y}" if before is None or before.year != moment.year else ""
    day = f"{moment:%d %b}" if before is None or before.date() != moment.date() else ""
    if daily:
        return f"{day}\n{year}".rstrip()
    clock = f"{moment:%H:%M:%S}" if moment.second else f"{moment:%H:%M}"
    return f"{clock}\n{day} {year}".rstrip()


def count_axis(axes: Axes, text: str) -> None:
    """The vertical axis counts: whole numbers with commas, and no lines across for the time below."""
    axes.set_ylabel(text)
    axes.yaxis.set_major_locator(MaxNLocator(5, integer=True))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    axes.grid(axis="x", visible=False)


class OneFormat(Formatter):
    """Numbers with commas, all ticks of an axis with equally many decimals: 97.5 stands beside 95.0, not beside 95."""

    def __init__(self, factor: int = 1, unit: str = "") -> None:
        self._factor, self._unit = factor, unit

    def __call__(self, value: float, _pos: int | None = None) -> str:
        return self.format_ticks([value])[0]

    def format_ticks(self, values: Sequence[float]) -> list[str]:
        scaled = [round(float(value) * self._factor, 6) for value in values]
        decimals = max((_decimals_of(value) for value in scaled), default=0)
        return [f"{value:,.{decimals}f}{self._unit}" for value in scaled]


def _decimals_of(value: float) -> int:
    return len(f"{value:.6f}".rstrip("0").partition(".")[2])


def share_axis(axis: Axis) -> None:
    axis.set_major_formatter(OneFormat(100, "%"))


def legend_above(axes: Axes, **options: Any) -> None:
    axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=6, borderaxespad=0.2, handlelength=1.4, **options)


def legend_beside(axes: Axes, **options: Any) -> None:
    axes.legend(loc="upper left", bbox_to_anchor=(1.01, 1), borderaxespad=0, fontsize=9, handlelength=1.4, **options)


def save_png(figure: Figure, path: Path, source: str) -> None:
    """Write the figure to `path`, whole or not at all, with `source` in small print at its foot."""
    with styled(), whole_file(path) as part:
        foot = 0.08 / figure.get_figheight()
        small = figure.text(0.99, foot, source, ha="right", va="bottom", fontsize=8, color="#777777")
        _save(figure, part, format="png", dpi=DPI)
        small.remove()  # a page says it once for all its charts


def svg(figure: Figure, name: str | None = None) -> str:
    """The figure as one `<svg>` element for an HTML page: the same text for equal figures, whenever it is made.

    Ids begin with `name`, which must be unique in the page; without it they begin with a hash of the picture, so that
    only two equal pictures share them. It is no SVG file: what only those need (prolog, namespaces) is left out.
    """
    with styled(), io.StringIO() as out:
        _save(figure, out, format="svg", metadata={"Date": None})
        text = out.getvalue()
    root = ElementTree.fromstring(text)
    _strip(root)
    _rename_ids(root, name or f"c{hashlib.sha256(text.encode()).hexdigest()[:12]}")
    # matplotlib says this in a style sheet with the selector `*`, which in a page would be about the whole page.
    root.attrib |= {"style": "stroke-linejoin: round; stroke-linecap: butt", "role": "img"}
    root.attrib.pop("version", None)
    if title := figure.get_label():
        root.attrib["aria-label"] = str(title)
    return ElementTree.tostring(root, encoding="unicode")


def _save(figure: Figure, out: Path | io.StringIO, **options: Any) -> None:
    figure.savefig(out, **options)
    # The layout stays as it is now: made once more, it would start from this one and end a little beside it.
    figure.set_layout_engine("none")


def _strip(element: ElementTree.Element) -> None:
    """Remove namespaces, metadata, style sheets and the white space between elements."""
    element.tag = element.tag.rpartition("}")[2]
    element.attrib = {key.rpartition("}")[2]: value for key, value in element.attrib.items()}
    for child in list(element):
        _strip(child)
        child.tail = None
        if child.tag in ("metadata", "style") or (child.tag == "defs" and not len(child)):
            element.remove(child)
    if element.tag not in ("text", "tspan", "title"):
        element.text = None


def _rename_ids(root: ElementTree.Element, name: str) -> None:
    """Put `name` before each id that something refers to, and drop the others (`patch_1`), which all charts share."""
    used: set[str] = set()
    for element in root.iter():
        for key, value in element.attrib.items():
            used.update(re.findall(r"url\(#([^)]+)\)", value))
            if key == "href":
                used.add(value.removeprefix("#"))
    for element in root.iter():
        for key, value in list(element.attrib.items()):
            if key == "id" and value not in used:
                del element.attrib[key]
            elif key == "id":
                element.attrib[key] = f"{name}-{value}"
            elif key == "href" and value.startswith("#"):  # not a picture's `data:`
                element.attrib[key] = f"#{name}-{value[1:]}"
            else:
                element.attrib[key] = value.replace("url(#", f"url(#{name}-")
