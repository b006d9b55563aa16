"""halfmoon.pipeline.reports.charts: what the pictures show, and that any report can be drawn."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta, timezone
from itertools import pairwise
from math import isnan
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.dates import date2num, num2date
from matplotlib.figure import Figure

from halfmoon.pipeline.reports.charts import CHARTS, MOST_POINTS
from halfmoon.pipeline.reports.drawing import styled, svg
from halfmoon.pipeline.reports.report import Report
from halfmoon.pipeline.reports.window_axis import WindowAxis, duration

T0 = datetime(2026, 1, 31, 14, tzinfo=UTC)
MINUTE, HOUR = timedelta(minutes=1), timedelta(hours=1)

COLUMNS = {
    "success_rate_by_window": ("window_start", "orders", "paid", "late", "missing", "success_share"),
    "success_rate": ("window_start", "region", "orders", "paid", "late", "missing", "success_share"),
    "delay_by_level": ("asked", "wait_s", "messages", "early", "p50_ms", "p90_ms", "p99_ms", "max_ms"),
    "delay_over_time": ("window_start", "messages", "p50_ms", "p99_ms"),
    "dlq_over_time": ("window_start", "group", "letters"),
    "dlq_by_reason": ("group", "reason", "topic", "letters"),
    "lag_over_time": ("at", "group", "topic", "lag"),
}
KEYS = {"success_rate": 2, "delay_by_level": 2, "dlq_over_time": 2, "dlq_by_reason": 3, "lag_over_time": 3}

HOSTILE = "<b>$x_1$&\n\x00\udc80" + "long " * 100


def draw(name: str, *rows: tuple[Any, ...]) -> Figure:
    return CHARTS[name](Report(name, "", COLUMNS[name], rows, KEYS.get(name, 1)))


def said(figure: Figure) -> str:
    """Title and subtitle."""
    return "\n".join(text.get_text() for text in figure.texts)


def labels(ticks: Sequence[Any]) -> list[str]:
    return [tick.get_text() for tick in ticks]


def legend(axes: Any) -> list[str]:
    return labels(axes.get_legend().get_texts())


def xs(line: Any) -> list[datetime]:
    return [num2date(x) for x in line.get_xdata()]


def test_there_is_a_chart_for_each_report() -> None:
    assert CHARTS.keys() == COLUMNS.keys()


ANY_ROW: dict[str, tuple[Any, ...]] = {
    "success_rate_by_window": (T0, 10, 9, 1, 0, 0.9),
    "success_rate": (T0, "EU", 20, 18, 1, 1, 0.9),
    "delay_by_level": ("DELAY=3", 10.0, 5, 1, -2.0, 0.0, 7.5, 80.0),
    "delay_over_time": (T0, 5, 2.0, 9.0),
    "dlq_over_time": (T0, "payments", 3),
    "dlq_by_reason": ("payments", "expired", "orders", 3),
    "lag_over_time": (T0, "payments", "orders", 3),
}


@pytest.mark.parametrize("name", CHARTS)
def test_a_chart_of_nothing_says_so(name: str) -> None:
    figure = draw(name)
    assert figure.axes == []
    assert "no rows" in said(figure)
    svg(figure)


@pytest.mark.parametrize("name", CHARTS)
@pytest.mark.parametrize("count", [1, 2])
def test_few_rows_are_drawn_without_a_warning(name: str, count: int) -> None:
    figure = draw(name, *[ANY_ROW[name]] * count)
    assert figure.axes
    assert svg(figure) == svg(figure) == svg(draw(name, *[ANY_ROW[name]] * count))


@pytest.mark.parametrize("name", CHARTS)
def test_what_is_not_known_is_drawn_as_nothing(name: str) -> None:
    row = tuple(value if isinstance(value, datetime) else None for value in ANY_ROW[name])
    svg(draw(name, row))
    svg(draw(name, row, ANY_ROW[name]))


@pytest.mark.parametrize("name", ["success_rate", "delay_by_level", "dlq_over_time", "dlq_by_reason", "lag_over_time"])
def test_names_of_any_kind_are_labels(name: str) -> None:
    row = tuple(HOSTILE if isinstance(value, str) else value for value in ANY_ROW[name])
    text = svg(draw(name, row))
    assert "&lt;b&gt;$x_1$&amp; \ufffd" in text
    assert "<b>" not in text
    assert "long long long long long long" not in text


@pytest.mark.parametrize(
    "name", [name for name in CHARTS if "window_start" in COLUMNS[name] or name == "lag_over_time"]
)
def test_a_naive_time_is_utc(name: str) -> None:
    aware, naive, elsewhere = (
        svg(draw(name, *((at + n * HOUR, *ANY_ROW[name][1:]) for n in range(3))))
        for at in (T0, T0.replace(tzinfo=None), T0.astimezone(timezone(5 * HOUR)))
    )
    assert aware == naive == elsewhere


def test_delays_stand_in_the_order_of_what_was_asked_for() -> None:
    figure = draw(
        "delay_by_level",
        ("TIMER_DELIVER_MS", None, 7, 0, None, None, None, None),
        ("DELAY=5", 60.0, 1200, 0, 5.0, 20.0, 300.0, 4000.0),
        ("DELAY=1", 1.0, 10, 3, -4.0, 0.2, 10.0, 30.0),
    )
    [axes] = figure.axes
    assert labels(axes.get_yticklabels()) == ["DELAY=1, 1 s (10)", "DELAY=5, 1 min (1,200)", "TIMER_DELIVER_MS (7)"]
    assert legend(axes) == ["median", "90th percentile", "99th percentile", "maximum"]
    drawn = {line.get_label(): [None if isnan(x) else x for x in line.get_xdata()] for line in axes.lines}
    assert drawn["median"] == [1.0, 5.0, None]
    assert drawn["90th percentile"] == [1.0, 20.0, None]
    assert drawn["maximum"] == [30.0, 4000.0, None]
    notes = {text.get_text(): text for text in axes.texts}
    assert notes.keys() == {"3 early", "not known"}
    assert notes["3 early"].xy == (30.0, 0)
    assert axes.get_xscale() == "log"
    assert axes.get_xlim()[0] < 1
    assert axes.get_xlim()[1] > 10_000
    assert axes.xaxis.get_major_formatter()(1, 0) == "≤ 1"
    assert axes.xaxis.get_major_formatter()(1000, 0) == "1,000"
    assert "below 1 ms, or early, is drawn at 1 ms" in said(figure)


def test_delays_that_need_no_clipping_say_nothing_of_it() -> None:
    figure = draw("delay_by_level", ("DELAY=1", 1.0, 10, 0, 30.0, 40.0, 50.0, 60.0))
    [axes] = figure.axes
    low, high = axes.get_xlim()
    assert low < 10 < 100 < high
    assert axes.xaxis.get_major_formatter()(1, 0) == "1"
    assert "drawn at" not in said(figure)


def test_of_many_levels_those_with_most_messages_are_shown() -> None:
    figure = draw("delay_by_level", *((f"DELAY={n}", float(n), 100 + n, 0, 1.0, 2.0, 3.0, 4.0) for n in range(1, 41)))
    shown = labels(figure.axes[0].get_yticklabels())
    assert (len(shown), shown[0], shown[-1]) == (30, "DELAY=11, 11 s (111)", "DELAY=40, 40 s (140)")
    assert "the 30 of 40 with most messages" in said(figure)


def test_delay_over_time_is_broken_where_there_was_none() -> None:
    rows = [(T0 + n * 5 * MINUTE, 100 + n, 10.0, 20.0 + n) for n in (3, 0, 1, 6, 7)]
    figure = draw("delay_over_time", *rows, (T0 + 2 * 5 * MINUTE, 4, None, 5.0))
    top, bottom = figure.axes
    assert legend(top) == ["99th percentile", "median"]
    lines = {line.get_label(): line for line in top.lines}
    values = [None if isnan(y) else y for y in lines["99th percentile"].get_ydata()]
    assert values == [20.0, 21.0, 5.0, 23.0, None, 26.0, 27.0]
    assert [None if isnan(y) else y for y in lines["median"].get_ydata()] == [10, 10, None, 10, None, 10, 10]
    assert xs(lines["median"])[0] == T0 + 2.5 * MINUTE
    assert [bar.get_height() for bar in bottom.patches] == [100, 101, 4, 103, 0, 0, 106, 107]
    assert top.get_ylim()[0] == 0
    assert "521 messages; each bar: 5 min" in said(figure)


@pytest.mark.parametrize(("p50", "scale"), [(10.0, "linear"), (1.0, "log"), (0.0, "linear"), (-5.0, "linear")])
def test_delay_over_time_has_the_scale_that_shows_both_lines(p50: float, scale: str) -> None:
    top, _ = draw("delay_over_time", (T0, 1, p50, 100.0), (T0 + HOUR, 1, p50, 100.0)).axes
    assert top.get_yscale() == scale
    assert ("log scale" in top.get_ylabel()) == (scale == "log")
    assert top.get_ylim()[0] <= p50


def test_of_many_points_the_highest_are_drawn() -> None:
    rows = [(T0 + n * MINUTE, 1, 10.0, 900.0 if n == 5001 else 20.0) for n in range(3 * MOST_POINTS)]
    figure = draw("delay_over_time", *rows, (T0 + 5001 * MINUTE, 1, 10.0, 900.0))
    lines = {line.get_label(): line for line in figure.axes[0].lines}
    assert len(lines["median"].get_xdata()) <= MOST_POINTS + 1
    assert max(lines["99th percentile"].get_ydata()) == 900
    assert "the highest of each 4 values" in said(figure)


def test_what_is_not_known_is_no_highest_value() -> None:
    rows = [(T0 + n * MINUTE, 1, -5.0 if n % 2 else None, 20.0) for n in range(2 * MOST_POINTS)]
    figure = draw("delay_over_time", *rows)
    [median] = [line for line in figure.axes[0].lines if line.get_label() == "median"]
    assert set(median.get_ydata()) == {-5.0}


def test_dead_letters_of_small_groups_are_counted_together() -> None:
    rows = [(T0 + n % 2 * HOUR, f"g{n}", 10 * n) for n in range(1, 11)]
    figure = draw("dlq_over_time", *rows)
    [axes] = figure.axes
    shown = legend(axes)
    assert shown[0] == "3 others (60)"
    assert shown[-1] == "g10 (100)"
    assert len(shown) == len(axes.containers) == 8
    tops = [max(part[n].get_y() + part[n].get_height() for part in axes.containers) for n in (0, 1)]
    assert tops == [2 * 10 + 4 * 10 + 6 * 10 + 8 * 10 + 100, 10 + 30 + 50 + 70 + 90]
    colours = {part[0].get_facecolor() for part in axes.containers}
    assert len(colours) == 8
    assert "550 dead letters of 10 groups; each bar: 1 h" in said(figure)


def test_dead_letters_by_reason_are_summed_over_topics() -> None:
    rows = [("g", f"reason {n}", "orders", 100 - n) for n in range(20)]
    figure = draw("dlq_by_reason", *rows, ("g", "reason 19", "refunds", 1000), ("h", "x" * 80, None, 500))
    [axes] = figure.axes
    assert [bar.get_width() for bar in axes.patches] == [1081, 500, *range(100, 87, -1)]
    shown = labels(axes.get_yticklabels())
    assert shown[0] == "g · reason 19"
    assert shown[1].startswith("h · xxxx")
    assert len(shown[1]) == len("h · ") + 32
    assert labels(axes.texts)[:3] == ["1,081 · 2 topics", "500 · –", "100 · orders"]
    assert axes.get_ylim()[0] > axes.get_ylim()[1]
    assert "the 15 commonest of 21 pairs" in said(figure)


def test_a_name_that_begins_with_an_underscore_is_in_the_legend() -> None:
    [axes] = draw("dlq_over_time", (T0, "_internal", 3), (T0, "payments", 2)).axes
    assert legend(axes) == ["payments (2)", "\u200b_internal (3)"]
    [axes] = draw("lag_over_time", (T0, "_internal", "orders", 3)).axes
    assert legend(axes) == ["\u200b_internal · orders (3)"]


def test_lag_shows_those_that_lag_most_at_the_end() -> None:
    rows = [(T0 + n * MINUTE, f"g{k:02}", "orders", 1000 * (n == 0) + k) for n in range(3) for k in range(12)]
    figure = draw("lag_over_time", *reversed(rows))
    [axes] = figure.axes
    assert legend(axes) == [f"g{k:02} · orders ({k})" for k in range(11, 1, -1)]
    assert axes.lines[0].get_ydata().tolist() == [1011, 11, 11]
    assert xs(axes.lines[0]) == [T0, T0 + MINUTE, T0 + 2 * MINUTE]
    looks = {(line.get_color(), line.get_linestyle()) for line in axes.lines}
    assert len(looks) == 10
    assert axes.get_ylim()[0] == 0
    assert axes.get_ylabel() == "lag (messages)"
    assert "the 10 of 12 with most at the end" in said(figure)


def test_lag_of_one_sample_says_that_there_is_one() -> None:
    one = [(T0, group, "orders", 7) for group in ("a", "b")]
    alone = draw("lag_over_time", *one)
    assert "One sample so far, so points and no lines: lag over time needs another run." in said(alone)
    assert legend(alone.axes[0]) == ["a · orders (7)", "b · orders (7)"]
    two = draw("lag_over_time", *one, (T0 + MINUTE, "a", "orders", 9))
    assert "One sample" not in said(two)
    assert "A line per group and topic" in said(two)
    assert legend(two.axes[0]) == ["a · orders (9)", "b · orders (7, one sample)"], "b has no line"


@pytest.mark.parametrize("name", [name for name in CHARTS if "window_start" in COLUMNS[name]])
@pytest.mark.parametrize("count", [1, 2, 4, 7, 9, 40])
@pytest.mark.parametrize("step", [MINUTE, 90 * MINUTE])
def test_ticks_of_few_windows_do_not_overlap(name: str, count: int, step: timedelta) -> None:
    figure = draw(name, *((T0 + n * step, *ANY_ROW[name][1:]) for n in range(count)))
    with styled():
        figure.draw_without_rendering()
    axes = figure.axes[1 if len(figure.axes) > 1 and name != "success_rate" else 0]
    boxes = [tick.get_window_extent() for tick in axes.get_xticklabels() if tick.get_text()]
    assert boxes
    for one, other in pairwise(boxes):
        assert one.x1 < other.x0


def test_milliseconds_are_written_out() -> None:
    top, _ = draw("delay_over_time", (T0, 1, 4.0, 7_200_000.0), (T0 + HOUR, 1, 4.0, 50.0)).axes
    written = [top.yaxis.get_major_formatter()(value, 0) for value in (0.5, 10, 10_000_000)]
    assert written == ["0.5", "10", "10,000,000"]


@pytest.mark.parametrize(
    ("starts", "most", "bar_s", "count", "first"),
    [
        ([0], 10, 3600, 1, 0),
        ([0, 0], 10, 3600, 1, 0),
        ([0, 300, 900], 10, 300, 4, 0),
        ([420, 840, 1260], 10, 420, 3, 420),
        ([60, 360], 10, 300, 2, 60),
        (range(0, 3600, 60), 10, 600, 6, 0),
        (range(0, 36_000, 420), 10, 420 * 10, 9, 0),
        ([1800 + 3600 * n for n in range(100)], 60, 7200, 50, 1800),
        ([1, 10**9], 60, 999_999_999, 2, 1),
    ],
)
def test_windows(starts: Sequence[int], most: int, bar_s: int, count: int, first: int) -> None:
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    moments = [epoch + timedelta(seconds=start) for start in starts]
    windows = WindowAxis(moments, most)
    assert (windows.bar_s, windows.count) == (bar_s, count)
    assert num2date(windows.edges[0]) == epoch + timedelta(seconds=first)
    assert len(windows.edges) == count + 1
    for moment in moments:
        place = windows.place(moment)
        assert windows.edges[place] <= date2num(moment) < windows.edges[place + 1]


@given(
    starts=st.lists(st.integers(0, 10**6), min_size=1, max_size=50),
    step=st.sampled_from([1, 7, 60, 420, 900, 3600, 86_400]),
    most=st.integers(2, 130),
)
def test_no_windows_are_lost_and_none_is_cut_in_two(starts: list[int], step: int, most: int) -> None:
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    rows = [{"window_start": epoch + timedelta(seconds=start * step), "orders": 1} for start in starts]
    windows = WindowAxis((row["window_start"] for row in rows), most)
    assert 1 <= windows.count <= most
    assert windows.bar_s % windows.step_s == 0
    sums = windows.sums(rows, "orders")
    assert sum(sums) == len(rows)
    assert sums[0] > 0
    assert sums[-1] > 0


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(1, "1 s"), (90, "90 s"), (60, "1 min"), (5400, "90 min"), (7200, "2 h"), (86400, "1 d"), (0.25, "0.25 s")],
)
def test_durations(seconds: float, text: str) -> None:
    assert duration(seconds) == text
