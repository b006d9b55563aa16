"""The success rate as pictures: over time, and by window and property.

Both are drawn so that an outage is what one sees first. The axis of the line chart and the colours of the heat map
reach to the worst value, so nothing is cut off. Where a bar or a cell stands for several windows, the worst of them is
drawn as well: an hour without payments would be lost in the mean of a day.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from math import ceil, isnan
from statistics import median
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from halfmoon.pipeline.reports.drawing import (
    BLUE,
    LINE,
    MOST_BARS,
    ORANGE,
    VERMILION,
    count_axis,
    frame,
    label,
    legend_above,
    many,
    marker_size,
    nothing,
    share_axis,
    styled,
)
from halfmoon.pipeline.reports.report import Report, heading, percent, utc
from halfmoon.pipeline.reports.window_axis import WindowAxis

FEWEST_ORDERS = 20
"""The share of fewer orders is chance: it has no colour, and is not called the lowest."""

POINT_STANDS_OUT, CELL_STANDS_OUT = 0.03, 0.1
"""A share so much below the median is written beside its point, into its cell. Of cells there are many."""

MOST_CELLS, MOST_VALUES, WORST_VALUES = 60, 20, 5
"""Of more values of a property the heat map shows those with most orders, and the worst five of the others."""

FEW_CELLS = 6
"""In so many columns there is room for what each cell is; of one alone the colour says little."""

LEAST_SPAN, LEAST_LOSS = 0.05, 0.2
"""How far the axis and the colours reach at least: a tenth of a percent should not look like an outage."""

_COLOURS = "magma_r"  # from light for no loss to dark; as uniform as cividis, and for colour-blind readers too


@styled()
def success_rate_by_window(report: Report) -> Figure:
    title = "Success rate of orders over time"
    if not report.rows:
        return nothing(title)
    rows = report.dicts()
    windows = WindowAxis(report.column("window_start"), MOST_BARS)
    figure = Figure(figsize=(11, 6), layout="constrained")
    top, bottom = figure.subplots(2, 1, sharex=True, height_ratios=[3, 2])
    shares, lowest = windows.shares(rows), windows.lowest(rows, FEWEST_ORDERS)
    _share_lines(top, windows, shares, lowest)
    _lowest_point(top, windows, rows, lowest)
    below = [0.0] * windows.count
    for column, colour in (("paid", BLUE), ("late", ORANGE), ("missing", VERMILION)):
        heights = windows.sums(rows, column)
        windows.bars(bottom, heights, bottom=below, color=colour, label=column)
        below = [one + other for one, other in zip(below, heights, strict=True)]
    count_axis(bottom, "orders")
    legend_above(bottom)
    windows.axis(bottom)
    whole = _overall(rows)
    orders = sum(row["orders"] or 0 for row in rows)
    frame(figure, title, f"{whole} of {many(orders, 'order')} succeeded; {windows.each_bar}")
    return figure


def _share_lines(axes: Axes, windows: WindowAxis, shares: list[float], lowest: list[float]) -> None:
    """The share of each bar and, of bars that hold several windows, their lowest."""
    style = {"marker": "o", "markersize": marker_size(windows.count), **LINE}
    axes.plot(windows.middles, shares, color=BLUE, label="all windows of a bar", **style)
    if windows.bar_s > windows.step_s:
        text = f"the lowest of them, of those with {FEWEST_ORDERS} orders and more"
        axes.plot(windows.middles, lowest, color=VERMILION, label=text, **style | {"linewidth": 1.0})
        legend_above(axes)
    axes.set_ylabel("orders that succeeded")
    share_axis(axes.yaxis)
    down = min([share for share in (*shares, *lowest) if not isnan(share)] + [1 - LEAST_SPAN])
    axes.set_ylim(max(0.0, down - 0.15 * (1 - down) - 0.005), 1.0 + 0.02 * (1.03 - down))


def _lowest_point(axes: Axes, windows: WindowAxis, rows: Sequence[dict[str, Any]], lowest: list[float]) -> None:
    """The lowest window, if it stands out, with its time: beside its point, on the side where the line is higher."""
    known = [row for row in rows if row["success_share"] is not None and (row["orders"] or 0) >= FEWEST_ORDERS]
    if not known:
        return
    worst = min(known, key=lambda row: (row["success_share"], utc(row["window_start"])))
    share, start = float(worst["success_share"]), utc(worst["window_start"])
    if share > median(float(row["success_share"]) for row in known) - POINT_STANDS_OUT:
        return
    at = windows.place(start)
    before, after = (_or_one(lowest, at + step) for step in (-1, 1))
    room = at / windows.count
    left = room > 0.8 or (room > 0.2 and before > after)
    axes.annotate(
        f"{percent(share)} at {start:%H:%M}, {start.day} {start:%b}",
        (windows.middles[at], share),
        (-12 if left else 12, 0),
        textcoords="offset points",
        ha="right" if left else "left",
        va="center",
        color=VERMILION,
        fontweight="bold",
        bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.85, "pad": 1.5},
    )


def _or_one(shares: list[float], at: int) -> float:
    return shares[at] if 0 <= at < len(shares) and not isnan(shares[at]) else 1.0


@styled()
def success_rate(report: Report) -> Figure:
    """A heat map of the loss: the share of orders that were not paid in time."""
    names = report.columns[1 : report.key_columns]
    title = f"Success rate by {' · '.join(label(heading(name), 24) for name in names) or 'window'}"
    if not report.rows:
        return nothing(title)
    windows = WindowAxis(report.column("window_start"), MOST_CELLS)
    of_value: dict[tuple[Any, ...], list[dict[str, Any]]] = defaultdict(list)
    for row in report.dicts():
        of_value[tuple(row[name] for name in names)].append(row)
    orders = {value: sum(row["orders"] or 0 for row in rows) for value, rows in of_value.items()}
    losses = {value: _losses(windows, rows) for value, rows in of_value.items()}
    order = _shown_values(orders, losses)
    figure = Figure(figsize=(11, 2.4 + 0.36 * max(3, len(order))), layout="constrained")
    axes = figure.add_subplot()
    _heat(figure, axes, windows, [losses[value] for value in order])
    texts = [
        f"{label(' · '.join(label(part, 24) for part in value) or 'all', 36)} ({orders[value]:,})" for value in order
    ]
    axes.set_yticks([y + 0.5 for y in range(len(order))], texts)
    axes.invert_yaxis()
    axes.grid(False)
    axes.tick_params(axis="y", length=0)
    axes.spines[:].set_visible(False)
    windows.axis(axes, least=0)
    cells = windows.each_bar.replace("bar", "cell")
    if windows.bar_s > windows.step_s:
        cells += ", with the loss of its worst window"
    left_out = len(orders) - len(order)
    busiest = MOST_VALUES - WORST_VALUES
    some = f"The {busiest} with most orders and the {WORST_VALUES} worst of the others; {left_out:,} more are not shown"
    few = f"hatched: fewer than {FEWEST_ORDERS} orders"
    note = f"Colour: loss, the share not paid in time; {cells}; {few}; in brackets: orders"
    frame(figure, title, note if not left_out else f"{note}\n{some}")
    return figure


def _losses(windows: WindowAxis, rows: list[dict[str, Any]]) -> list[float]:
    """Of each cell the loss of all its orders or, if that is more, of its worst window; nan where they are too few."""
    pairs = zip(windows.shares(rows, FEWEST_ORDERS), windows.lowest(rows, FEWEST_ORDERS), strict=True)
    return [1 - (whole if isnan(lowest) else min(whole, lowest)) for whole, lowest in pairs]


def _shown_values(orders: dict[tuple[Any, ...], int], losses: dict[tuple[Any, ...], list[float]]) -> list[Any]:
    """Values by their number of orders. If they are too many, the worst of those with few orders are among them."""

    def worst(value: tuple[Any, ...]) -> float:
        return max((loss for loss in losses[value] if not isnan(loss)), default=-1.0)

    order = sorted(orders, key=lambda value: (-orders[value], str(value)))
    if len(order) <= MOST_VALUES:
        return order
    busiest, others = order[: MOST_VALUES - WORST_VALUES], order[MOST_VALUES - WORST_VALUES :]
    kept = set(sorted(others, key=worst, reverse=True)[:WORST_VALUES])
    return [*busiest, *(value for value in others if value in kept)]


def _heat(figure: Figure, axes: Axes, windows: WindowAxis, grid: list[list[float]]) -> None:
    known = [loss for line in grid for loss in line if not isnan(loss)]
    # What is not known is left out of the mesh, and shows the hatched ground.
    axes.patch.set(facecolor="#F7F7F7", edgecolor="#CFCFCF", hatch="////", linewidth=0)
    # From no loss on, in whole tenths to beyond the worst one: no colour stands for "so much or more".
    most = max(ceil(round(10 * max(known, default=0.0), 6)) / 10, LEAST_LOSS)
    image = axes.pcolormesh(
        windows.edges, range(len(grid) + 1), grid, cmap=mpl.colormaps[_COLOURS], vmin=0.0, vmax=most,
        edgecolors="white", linewidth=0.8,
    )  # fmt: skip
    if not known:
        text = f"No cell has {FEWEST_ORDERS} orders: too few for a rate"
        axes.text(0.5, 0.5, text, transform=axes.transAxes, ha="center", va="center", color="#555555",
                  bbox={"facecolor": "white", "edgecolor": "none", "pad": 5})  # fmt: skip
        return
    bar = figure.colorbar(image, ax=axes, label="loss", pad=0.015)
    share_axis(bar.ax.yaxis)
    bar.outline.set_visible(False)
    for y, line in enumerate(grid):
        for middle, loss in zip(windows.middles, line, strict=True):
            stands_out = loss >= most / 2 and loss > median(known) + CELL_STANDS_OUT
            if not isnan(loss) and (stands_out or windows.count <= FEW_CELLS):
                axes.text(middle, y + 0.5, f"{loss:.0%}", rotation=90 if windows.count > 16 else 0, ha="center",
                          va="center", fontsize=8, color="white" if loss > 0.4 * most else "black")  # fmt: skip


def _overall(rows: list[dict[str, Any]]) -> str:
    known = [row for row in rows if row["success_share"] is not None]
    orders = sum(row["orders"] or 0 for row in known)
    return percent(sum(float(row["success_share"]) * (row["orders"] or 0) for row in known) / orders) if orders else "–"
