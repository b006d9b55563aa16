"""Charts of the reports about delays, dead letters and lag; those about orders are in success_charts.py. Each function
takes a Report and returns a Figure.

`CHARTS` names them by their report. Any number of rows will do: windows too many for the eye are drawn several to a bar
or cell, which the subtitle then says, and of groups, levels and property values those that matter most are shown.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable
from datetime import datetime, timedelta
from math import ceil, floor, inf, isnan, log10, nan
from typing import Any

from matplotlib.axes import Axes
from matplotlib.dates import date2num
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

from halfmoon.pipeline.reports.drawing import (
    BLUE,
    DAY_S,
    GREY,
    LINE,
    MOST_BARS,
    ORANGE,
    SERIES,
    VERMILION,
    OneFormat,
    count_axis,
    frame,
    label,
    legend_above,
    legend_beside,
    many,
    marker_size,
    nothing,
    styled,
    time_axis,
)
from halfmoon.pipeline.reports.report import Report, utc
from halfmoon.pipeline.reports.success_charts import success_rate, success_rate_by_window
from halfmoon.pipeline.reports.window_axis import WindowAxis, duration

MOST_POINTS = 1200

_DELAYS = {
    "max_ms": ("#666666", "maximum"),
    "p99_ms": (VERMILION, "99th percentile"),
    "p90_ms": (ORANGE, "90th percentile"),
    "p50_ms": (BLUE, "median"),
}


@styled()
def delay_by_level(report: Report) -> Figure:
    title = "How late delayed messages came, by delay asked for"
    if not report.rows:
        return nothing(title)
    most = sorted(report.dicts(), key=lambda row: -(row["messages"] or 0))[:30]
    rows = sorted(most, key=lambda row: (row["wait_s"] is None, row["wait_s"] or 0, str(row["asked"])))
    figure = Figure(figsize=(11, 2.4 + 0.36 * max(3, len(rows))), layout="constrained")
    axes = figure.add_subplot()
    axes.set_xscale("log")
    _ranges(axes, rows)
    axes.set_yticks(range(len(rows)), [_level(row) for row in rows])
    axes.set_ylim(max(3, len(rows)) - 0.4, -0.6)
    axes.grid(axis="y", visible=False)
    axes.tick_params(axis="y", length=0)
    values = [row[name] for row in rows for name in _DELAYS if row[name] is not None]
    clipped = min(values, default=1) < 1
    _log_ms(axes, [_clipped(value) for value in values], clipped)
    axes.set_xlabel("delivered after it was due (ms, log scale)")
    legend_above(axes, reverse=True)
    limit = f"; the {len(rows)} of {len(report.rows):,} with most messages" if len(rows) < len(report.rows) else ""
    low = "; what is below 1 ms, or early, is drawn at 1 ms" if clipped else ""
    frame(figure, title, f"In brackets: messages{limit}{low}")
    return figure


def _ranges(axes: Axes, rows: list[dict[str, Any]]) -> None:
    """A line from the median to the maximum for each row, and points on it; the median is drawn last, above all."""
    values = {name: [_clipped(row[name]) for row in rows] for name in _DELAYS}
    place = list(range(len(rows)))
    ends = [
        max((end for end in of_row if not isnan(end)), default=nan) for of_row in zip(*values.values(), strict=True)
    ]
    axes.hlines(place, values["p50_ms"], ends, color="#C4C4C4", linewidth=2.5, zorder=1)
    colour, text = _DELAYS["max_ms"]
    axes.plot(values["max_ms"], place, "|", color=colour, markersize=11, markeredgewidth=2, label=text)
    for name, (colour, text) in _DELAYS.items():
        if name != "max_ms":
            axes.plot(values[name], place, "o", color=colour, markersize=8, markeredgecolor="white", label=text)
    for y, row, end in zip(place, rows, ends, strict=True):
        if isnan(end):
            axes.text(0.01, y, "not known", va="center", fontsize=9, color=GREY, transform=axes.get_yaxis_transform())
        elif row["early"]:
            note = f"{row['early']:,} early"
            axes.annotate(note, (end, y), (9, 0), textcoords="offset points", va="center", fontsize=9, color=VERMILION)


def _level(row: dict[str, Any]) -> str:
    wait = "" if row["wait_s"] is None else f", {duration(row['wait_s'])}"
    return f"{label(row['asked'], 28)}{wait} ({row['messages'] or 0:,})"


def _clipped(value: float | None) -> float:
    return nan if value is None else max(1.0, float(value))


def _log_ms(axes: Axes, values: list[float], clipped: bool) -> None:
    """Whole powers of ten at both ends, so that at least two of them can be read."""
    low, high = floor(log10(min(values, default=1))), ceil(log10(max(values, default=10)))
    axes.set_xlim(10**low * 0.8, 10 ** max(high, low + 1) * 1.6)
    axes.xaxis.set_major_locator(LogLocator(10))
    axes.xaxis.set_minor_formatter(NullFormatter())
    at_one = "≤ 1" if clipped else "1"
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: at_one if value == 1 else f"{value:,.0f}"))


@styled()
def delay_over_time(report: Report) -> Figure:
    title = "How late delayed messages came, over time"
    if not report.rows:
        return nothing(title)
    rows = sorted(report.dicts(), key=lambda row: utc(row["window_start"]))
    windows = WindowAxis(report.column("window_start"), MOST_BARS)
    figure = Figure(figsize=(11, 6), layout="constrained")
    top, bottom = figure.subplots(2, 1, sharex=True, height_ratios=[5, 2])
    for column, colour, text in (("p99_ms", VERMILION, "99th percentile"), ("p50_ms", BLUE, "median")):
        middles = [utc(row["window_start"]) + timedelta(seconds=windows.step_s / 2) for row in rows]
        points = list(zip(middles, [row[column] for row in rows], strict=True))
        _line(top, points, color=colour, label=text, gap_s=windows.bar_s)
    _ms_axis(top, [row[column] for row in rows for column in ("p50_ms", "p99_ms") if row[column] is not None])
    legend_above(top)
    windows.bars(bottom, windows.sums(rows, "messages"), color=GREY)
    count_axis(bottom, "messages")
    windows.axis(bottom)
    messages = many(sum(row["messages"] or 0 for row in rows), "message")
    frame(figure, title, f"{messages}; {windows.each_bar}{_highest_of(len(rows))}")
    return figure


def _ms_axis(axes: Axes, values: list[float]) -> None:
    """From 0 on; with a log scale where a median would lie flat on the ground below the peaks of a percentile."""
    if values and min(values) > 0 and max(values) > 30 * min(values):
        axes.set_yscale("log")
        steps = (1, 2, 5) if max(values) < 1000 * min(values) else (1,)
        axes.yaxis.set_major_locator(LogLocator(10, subs=steps))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))
        axes.set_ylabel("delivered after it was due\n(ms, log scale)")
    else:
        axes.yaxis.set_major_formatter(OneFormat())
        axes.set_ylabel("delivered after it was due (ms)")
        axes.set_ylim(bottom=0 if min(values, default=0) >= 0 else None)
    axes.yaxis.set_minor_formatter(NullFormatter())


@styled()
def dlq_over_time(report: Report) -> Figure:
    title = "Dead letters over time, by group"
    if not report.rows:
        return nothing(title)
    rows = report.dicts()
    letters: Counter[Any] = Counter()
    for row in rows:
        letters[row["group"]] += row["letters"] or 0
    top = [group for group, _ in sorted(letters.items(), key=lambda item: (-item[1], str(item[0])))][: len(SERIES)]
    windows = WindowAxis(report.column("window_start"), MOST_BARS)
    figure = Figure(figsize=(11, 5), layout="constrained")
    axes = figure.add_subplot()
    parts = [(group, label(group, 28), colour) for group, colour in zip(top, SERIES, strict=False)]
    below = [0.0] * windows.count
    for group, text, colour in parts:
        heights = windows.sums([row for row in rows if row["group"] == group], "letters")
        windows.bars(axes, heights, bottom=below, color=colour, label=f"{text} ({letters[group]:,})")
        below = [one + other for one, other in zip(below, heights, strict=True)]
    if others := [row for row in rows if row["group"] not in top]:
        text = f"{len(letters) - len(top):,} others ({sum(row['letters'] or 0 for row in others):,})"
        windows.bars(axes, windows.sums(others, "letters"), bottom=below, color=GREY, label=text)
    count_axis(axes, "dead letters")
    legend_beside(axes, reverse=True)
    windows.axis(axes)
    frame(figure, title, f"{many(letters.total(), 'dead letter')} of {many(len(letters), 'group')}; {windows.each_bar}")
    return figure


@styled()
def dlq_by_reason(report: Report) -> Figure:
    title = "Why messages became dead letters"
    if not report.rows:
        return nothing(title)
    letters: Counter[tuple[Any, Any]] = Counter()
    topics: dict[tuple[Any, Any], set[Any]] = defaultdict(set)
    for row in report.dicts():
        key = row["group"], row["reason"]
        letters[key] += row["letters"] or 0
        topics[key].add(row["topic"])
    order = sorted(letters, key=lambda key: (-letters[key], str(key)))[:15]
    figure = Figure(figsize=(11, 2.0 + 0.36 * max(3, len(order))), layout="constrained")
    axes = figure.add_subplot()
    place = list(range(len(order)))
    axes.barh(place, [letters[key] for key in order], color=BLUE, height=0.7)
    for y, key in zip(place, order, strict=True):
        [*some] = topics[key]
        note = f"{letters[key]:,} · {label(some[0], 24) if len(some) == 1 else f'{len(some)} topics'}"
        axes.annotate(note, (letters[key], y), (5, 0), textcoords="offset points", va="center", fontsize=9)
    axes.set_yticks(place, [f"{label(group, 22)} · {label(reason, 32)}" for group, reason in order])
    axes.set_ylim(max(3, len(order)) - 0.4, -0.6)
    axes.set_xlim(0, max(*(letters[key] for key in order), 1) * 1.35)
    axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    axes.set_xlabel("dead letters")
    axes.grid(axis="y", visible=False)
    axes.tick_params(axis="y", length=0)
    most = f", the {len(order)} commonest of {len(letters):,} pairs" if len(order) < len(letters) else ""
    whole = many(letters.total(), "dead letter")
    frame(figure, title, f"{whole} by group and reason{most}; beside the bars: their number and topic")
    return figure


@styled()
def lag_over_time(report: Report) -> Figure:
    title = "Consumer lag over time"
    if not report.rows:
        return nothing(title)
    lines: dict[tuple[Any, Any], list[tuple[datetime, float | None]]] = defaultdict(list)
    for row in sorted(report.dicts(), key=lambda row: utc(row["at"])):
        lines[row["group"], row["topic"]].append((utc(row["at"]), row["lag"]))
    last = {key: points[-1][1] or 0 for key, points in lines.items()}
    order = sorted(lines, key=lambda key: (-last[key], str(key)))[:10]
    figure = Figure(figsize=(11, 5.2), layout="constrained")
    axes = figure.add_subplot()
    colours = (*SERIES, "black", GREY, BLUE)
    moments = [date2num(utc(moment)) for moment in report.column("at")]
    first, last_of_all = min(moments), max(moments)
    for place, (key, colour) in enumerate(zip(order, colours, strict=False)):
        alone = len(lines[key]) == 1
        note = ", one sample" if alone and first != last_of_all else ""
        text = f"{label(key[0], 20)} · {label(key[1], 16)} ({last[key]:,}{note})"
        dashes = "" if alone else "-" if place < 9 else "--"
        _line(axes, lines[key], color=colour, label=text, linestyle=dashes, zorder=12 - place)
    axes.set_ylim(bottom=0)
    count_axis(axes, "lag (messages)")
    legend_beside(axes)
    time_axis(axes, first, last_of_all)
    room = (last_of_all - first) / 100 or 1.0
    axes.set_xlim(first - room, last_of_all + room)
    most = f"the {len(order)} of {len(lines):,} with most at the end" if len(order) < len(lines) else "most first"
    thinned = _highest_of(max(map(len, lines.values())))
    text = f"A line per group and topic, {most}; in brackets: lag at the end{thinned}"
    if first == last_of_all:
        text = f"One sample so far, so points and no lines: lag over time needs another run. In brackets: lag, {most}"
    frame(figure, title, text)
    return figure


def _line(axes: Axes, points: list[tuple[datetime, float | None]], gap_s: int | None = None, **style: Any) -> None:
    """A line through points in order of time, broken where a value is None or two are more than `gap_s` apart.

    Of very many points only the highest of each stretch is drawn: a peak is what one looks for.
    """
    stretch = ceil(len(points) / MOST_POINTS)
    peaks = [
        max(points[at : at + stretch], key=lambda point: -inf if point[1] is None else point[1])
        for at in range(0, len(points), stretch)
    ]
    times: list[float] = []
    values: list[float] = []
    for moment, value in peaks:
        at = date2num(moment)
        if gap_s is not None and times and (at - times[-1]) * DAY_S > 1.5 * gap_s:
            times.append(at)
            values.append(nan)
        times.append(at)
        values.append(nan if value is None else float(value))
    axes.plot(times, values, marker="o", markersize=marker_size(len(peaks)), **LINE, **style)


def _highest_of(points: int) -> str:
    """What a subtitle says of lines that `_line` had to thin out."""
    stretch = ceil(points / MOST_POINTS)
    return f"; lines: the highest of each {stretch} values" if stretch > 1 else ""


CHARTS: dict[str, Callable[[Report], Figure]] = {
    "success_rate_by_window": success_rate_by_window,
    "success_rate": success_rate,
    "delay_by_level": delay_by_level,
    "delay_over_time": delay_over_time,
    "dlq_over_time": dlq_over_time,
    "dlq_by_reason": dlq_by_reason,
    "lag_over_time": lag_over_time,
}
"""The chart of each report that has one, by the report's name."""
