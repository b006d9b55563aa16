"""Windows of time as bars of a chart: how many to a bar, and where they stand."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from math import ceil, floor, gcd, isnan, nan
from typing import Any

from matplotlib.axes import Axes
from matplotlib.dates import date2num

from halfmoon.pipeline.reports.drawing import DAY_S, HANDY_S, time_axis
from halfmoon.pipeline.reports.report import utc

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class WindowAxis:
    """The windows of a report on an axis of time, at most `most` bars wide; a bar stands for one window or several.

    How long a window is, in seconds, is not in the reports: it is the largest step that all starts are multiples of.
    Bars of several windows begin where a clock would have them (at the full hour, at midnight UTC) if windows do.
    """

    def __init__(self, starts: Iterable[datetime], most: int) -> None:
        seconds = sorted({_seconds(start) for start in starts})
        self.alone = len(seconds) == 1
        step = gcd(*(later - earlier for earlier, later in pairwise(seconds))) or 3600
        self.step_s = step
        self.bar_s = _bar_s(step, seconds[-1] - seconds[0], most)
        self._shift = seconds[0] % step
        self._first = (seconds[0] - self._shift) // self.bar_s
        self.count = self.place(seconds[-1]) + 1
        edges = (self._shift + (self._first + n) * self.bar_s for n in range(self.count + 1))
        self.edges: list[float] = [date2num(_EPOCH + timedelta(seconds=edge)) for edge in edges]
        self.middles = [(start + end) / 2 for start, end in pairwise(self.edges)]

    def place(self, start: datetime | int) -> int:
        """Which bar the window that begins at `start` is in, from 0 on."""
        seconds = start if isinstance(start, int) else _seconds(start)
        return (seconds - self._shift) // self.bar_s - self._first

    def sums(self, rows: Iterable[dict[str, Any]], column: str) -> list[float]:
        """The column's sum per bar; None counts as nothing."""
        sums = [0.0] * self.count
        for row in rows:
            sums[self.place(row["window_start"])] += row[column] or 0
        return sums

    def shares(self, rows: Iterable[dict[str, Any]], fewest: int = 1) -> list[float]:
        """`success_share` per bar, each window's weighed by its orders; nan where fewer than `fewest` are known of."""
        good, all_of_them = [0.0] * self.count, [0.0] * self.count
        for row in rows:
            if row["success_share"] is not None:
                at, orders = self.place(row["window_start"]), row["orders"] or 0
                good[at] += float(row["success_share"]) * orders
                all_of_them[at] += orders
        return [part / whole if whole >= fewest else nan for part, whole in zip(good, all_of_them, strict=True)]

    def lowest(self, rows: Iterable[dict[str, Any]], fewest: int) -> list[float]:
        """The lowest `success_share` of a window in each bar, of windows with `fewest` orders and more; nan if none."""
        lowest = [nan] * self.count
        for row in rows:
            if row["success_share"] is not None and (row["orders"] or 0) >= fewest:
                at, share = self.place(row["window_start"]), float(row["success_share"])
                lowest[at] = share if isnan(lowest[at]) else min(lowest[at], share)
        return lowest

    def bars(self, axes: Axes, heights: Sequence[float], **style: Any) -> None:
        # A gap between bars and no edges: an edge would hide a thin piece of a stack.
        axes.bar(self.middles, heights, 0.94 * self.bar_s / DAY_S, linewidth=0, **style)

    def axis(self, axes: Axes, least: int = 8) -> None:
        """The axis of time below, with room for `least` bars: two or three should not fill it."""
        start, end = self.edges[0], self.edges[-1]
        # A tick per eighth of the axis: between the ticks of two bars in the middle is no room for more.
        time_axis(axes, start, start if self.alone else end, 1 + min(8, 8 * self.count // max(least, 1)))
        room = max(0.0, (least - self.count) / 2 * self.bar_s / DAY_S)
        axes.set_xlim(start - room, end + room)

    @property
    def each_bar(self) -> str:
        return "one window" if self.alone else f"each bar: {duration(self.bar_s)}"


def duration(seconds: float) -> str:
    """60 → 1 min, 90 → 90 s: the largest unit that needs no fraction."""
    for unit, length in (("d", DAY_S), ("h", 3600), ("min", 60)):
        if seconds >= length and seconds % length == 0:
            return f"{seconds / length:,.0f} {unit}"
    return f"{seconds:,g} s"


def _seconds(moment: datetime) -> int:
    return floor((utc(moment) - _EPOCH).total_seconds())


def _bar_s(step: int, span: int, most: int) -> int:
    """The length in seconds, a multiple of `step`, of bars of which `most` hold `span`: a handy one, if one is near."""
    if span // step + 1 <= most:
        return step
    least = step * ceil(span / step / (most - 1))
    return next((handy for handy in HANDY_S if handy % step == 0 and least <= handy <= 3 * least), least)
