"""The flights' reports as pictures. Each function takes a report with rows and returns a matplotlib Figure. What they
share with all other charts stands in drawing.py.
"""

from __future__ import annotations

from collections.abc import Callable
from math import ceil

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, PercentFormatter

from halfmoon.pipeline.reports.drawing import BLUE, GREEN, GREY, ORANGE, VERMILION, OneFormat, frame, nothing
from halfmoon.pipeline.reports.report import Report

MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
FEWEST_IN_CELL = 20
"""Cells of the heat map with fewer flights are left grey: their means are chance."""

_FEWEST_BANDS = 4
"""A panel has room for so many, so that the bars of one or two do not fill it."""
_LEAST_SCALE = 5.0
_ON_WHITE = {"facecolor": "white", "edgecolor": "none", "alpha": 0.85, "pad": 1}


def flight_charts(airports: list[tuple[float, float]]) -> dict[str, dict[str, Callable[[Report], Figure]]]:
    """A report's name → its charts by their names; `airports` (longitude, latitude) draw the map's ground."""
    return {
        "delay_by_carrier_month": {"delay_by_carrier_month": carrier_month},
        "delay_by_hour": {"delay_by_hour": hours},
        "delay_by_route": {"worst_routes": worst_routes, "delay_map": lambda report: delay_map(report, airports)},
        "delay_by_weather": {"delay_by_weather": weather},
    }


def carrier_grid(report: Report) -> tuple[list[str], list[list[float | None]]]:
    """Rows of the heat map: carriers with most flights first, twelve months of mean delay, None where too few flew."""
    flights: dict[str, int] = {}
    names: dict[str, str] = {}
    cells: dict[tuple[str, int], float | None] = {}
    for row in report.dicts():
        carrier = row["carrier"]
        names[carrier] = _short_airline(row["airline"] or carrier)
        flights[carrier] = flights.get(carrier, 0) + row["flights"]
        cells[carrier, row["month"]] = row["mean_dep_delay_min"] if row["flights"] >= FEWEST_IN_CELL else None
    order = sorted(flights, key=lambda carrier: (-flights[carrier], carrier))
    labels = [f"{names[carrier]} ({flights[carrier]:,})" for carrier in order]
    return labels, [[cells.get((carrier, month)) for month in range(1, 13)] for carrier in order]


def carrier_month(report: Report) -> Figure:
    labels, grid = carrier_grid(report)
    figure = Figure(figsize=(11, 1.9 + 0.4 * max(4, len(labels))), layout="constrained")
    axes = figure.add_subplot()
    low, high, beyond = _scale([cell for line in grid for cell in line if cell is not None])
    values = [[float("nan") if cell is None else cell for cell in line] for line in grid]
    colours = mpl.colormaps["cividis"].with_extremes(bad="#EFEFEF")
    image = axes.imshow(values, cmap=colours, aspect="auto", vmin=low, vmax=high)
    for y, line in enumerate(grid):
        for x, cell in enumerate(line):
            if cell is not None:
                dark = (cell - low) / (high - low) < 0.55
                axes.text(x, y, f"{cell:.0f}", ha="center", va="center", fontsize=9, color="white" if dark else "black")
    axes.set_xticks(range(12), MONTHS)
    axes.set_yticks(range(len(labels)), labels)
    axes.grid(False)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    bar = figure.colorbar(image, ax=axes, label="mean delay (minutes)", pad=0.015, extend=beyond)
    bar.ax.yaxis.set_major_formatter(OneFormat())
    subtitle = (
        "Mean in minutes; airlines by number of flights, which stands in brackets; blank: fewer than 20 in the month"
    )
    frame(figure, "Departure delay by carrier and month", subtitle)
    return figure


def hours(report: Report) -> Figure:
    title = "Departure delay through the day"
    rows = [row for row in report.dicts() if row["flights"] >= FEWEST_IN_CELL]
    if not rows:
        return nothing(title, f"No hour has {FEWEST_IN_CELL} flights: too few for a mean.")
    hour = [row["hour"] for row in rows]
    figure = Figure(figsize=(10, 6), layout="constrained")
    top, bottom = figure.subplots(2, 1, sharex=True, height_ratios=[3, 1])
    ends = []
    for column, label, colour, style in (
        ("p90_dep_delay_min", "90th percentile", VERMILION, "--"),
        ("mean_dep_delay_min", "mean", BLUE, "-"),
        ("median_dep_delay_min", "median", GREEN, ":"),
    ):
        values = [row[column] for row in rows]
        top.plot(hour, values, style, color=colour, linewidth=2.2, marker="o", markersize=4)
        if values[-1] is not None:
            ends.append((values[-1], label, colour))
    _beside(top, hour[-1], ends)
    top.axhline(0, color="#666666", linewidth=0.8)
    top.set_ylabel("departure delay (minutes)")
    bottom.bar(hour, [row["flights"] for row in rows], color=GREY, width=0.8)
    bottom.set_ylabel("flights")
    bottom.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    bottom.set_xticks(hour, [f"{h:02d}" for h in hour])
    bottom.set_xlim(hour[0] - 0.7, max(hour[-1] + 3.2, hour[0] + 9))
    bottom.set_xlabel("scheduled hour of departure (local time)")
    for axes in (top, bottom):
        axes.grid(axis="x", visible=False)
    hours_left_out = len(report.rows) - len(rows)
    few = f"; {hours_left_out} with fewer than {FEWEST_IN_CELL} are left out" if hours_left_out else ""
    frame(figure, title, f"Flights by the hour they were due to leave{few}")
    return figure


def _beside(axes: Axes, x: float, ends: list[tuple[float, str, str]]) -> None:
    """The names of lines beside their ends, from the highest down, each at least one line of text below the other."""
    low, high = axes.get_ylim()
    text, last = 0.075 * (high - low), high + (high - low)
    places = []
    for y, name, colour in sorted(ends, reverse=True):
        last = min(y, last - text)
        places.append((last, name, colour))
    up = max(0.0, low + text / 2 - last)  # All together, so that the last one stands above the ground.
    for y, name, colour in places:
        axes.annotate(name, (x, y + up), (8, 0), textcoords="offset points", va="center", color=colour, bbox=_ON_WHITE)


def worst_routes(report: Report, count: int = 15) -> Figure:
    rows = report.dicts()[:count]
    room = max(3, len(rows))
    figure = Figure(figsize=(10.5, 1.8 + 0.36 * room), layout="constrained")
    axes = figure.add_subplot()
    place = range(len(rows))
    mean = [row["mean_arr_delay_min"] or 0.0 for row in rows]
    axes.barh(place, mean, color=BLUE, height=0.7)
    for y, row, value in zip(place, rows, mean, strict=True):
        note = f"{value:.0f} min · {row['late_share'] or 0:.0%} left late · {row['flights']:,} flights"
        axes.annotate(note, (max(value, 0), y), (5, 0), textcoords="offset points", va="center", fontsize=9)
    axes.set_yticks(place, [f"{row['origin']} → {_short_airport(row['dest_name'], row['dest'])}" for row in rows])
    axes.set_ylim(room - 0.4, -0.6)
    axes.set_xlim(min(0.0, *mean), max(0.0, *mean) * 1.5 or 1)
    axes.set_xlabel("mean arrival delay (minutes)")
    axes.grid(axis="y", visible=False)
    axes.tick_params(axis="y", length=0)
    fewest = min(row["flights"] for row in report.dicts())
    subtitle = (
        f"Mean arrival delay; routes with at least {fewest:,} flights; left late: more than 15 minutes after schedule"
    )
    title = f"The {len(rows)} routes that arrive latest" if len(rows) > 1 else "The route that arrives latest"
    frame(figure, title, subtitle)
    return figure


def delay_map(report: Report, airports: list[tuple[float, float]]) -> Figure:
    """Destinations where they lie, over all airports as faint dots: no map file is needed to see the country."""
    west, east, south, north = -126, -65, 23.5, 50
    places: dict[str, tuple[float, float, int, float]] = {}
    for row in report.dicts():
        if row["dest_lat"] is None or row["mean_arr_delay_min"] is None:
            continue
        before = places.get(row["dest"], (0.0, 0.0, 0, 0.0))
        total = before[3] + row["mean_arr_delay_min"] * row["flights"]
        places[row["dest"]] = (row["dest_lon"], row["dest_lat"], before[2] + row["flights"], total)
    points = sorted(
        (
            (lon, lat, n, total / n, name)
            for name, (lon, lat, n, total) in places.items()
            if west < lon < east and south < lat < north
        ),
        key=lambda point: -point[2],
    )
    low, high, beyond = _scale([p[3] for p in points])
    figure = Figure(figsize=(11, 6.9), layout="constrained")
    axes = figure.add_subplot()
    axes.scatter([lon for lon, _ in airports], [lat for _, lat in airports], s=3, color="#D8D8D8", linewidths=0)
    shown = axes.scatter(
        [p[0] for p in points],
        [p[1] for p in points],
        s=[14 + p[2] / 28 for p in points],
        c=[p[3] for p in points],
        cmap="cividis",
        vmin=low,
        vmax=high,
        edgecolors="white",
        linewidths=0.8,
        alpha=0.95,
    )
    taken: list[tuple[float, float]] = []
    for lon, lat, _, delay, name in sorted(points, key=lambda point: -point[3])[:8]:
        side, offset = _free_side(lon, lat, taken)
        axes.annotate(f"{name} {delay:.0f}", (lon, lat), offset, textcoords="offset points", fontsize=9, ha=side)
    axes.set_xlim(west, east)
    axes.set_ylim(south, north)
    axes.set_aspect(1.28)
    axes.set_xticks([])
    axes.set_yticks([])
    axes.spines[:].set_visible(False)
    bar = figure.colorbar(shown, ax=axes, label="mean arrival delay (minutes)", shrink=0.8, pad=0.01, extend=beyond)
    bar.ax.yaxis.set_major_formatter(OneFormat())
    subtitle = (
        "Colour: mean arrival delay; area: number of flights; labelled: the latest ones; grey: all other airports"
    )
    frame(figure, "Where flights from New York arrive late", subtitle)
    return figure


def _free_side(lon: float, lat: float, taken: list[tuple[float, float]]) -> tuple[str, tuple[int, int]]:
    """Alignment and offset (points) of the label of a place, so that it lies on none of the labels in `taken`.

    These are middles of labels in degrees, and get this one's. A label is 3.6 degrees wide and 0.8 high on the map.
    """
    sides = {(right, above): (lon + 2.2 * right, lat + 0.6 * above) for above in (1, -1) for right in (1, -1)}
    free = (
        side
        for side, (x, y) in sides.items()
        if not any(abs(x - other_x) < 3.6 and abs(y - other_y) < 0.8 for other_x, other_y in taken)
    )
    right, above = next(free, (1, 1))
    taken.append(sides[right, above])
    return "left" if right > 0 else "right", (6 * right, 5 if above > 0 else -12)


def weather(report: Report) -> Figure:
    factors = ("visibility", "wind", "precipitation")
    figure = Figure(figsize=(12, 5.6), layout="constrained")
    panels = figure.subplots(1, len(factors), sharey=True)
    shares = [share or 0 for row in report.dicts() for share in (row["late_share"], row["cancelled_share"])]
    panels[0].set_ylim(0, max(1.1 * max(shares), 0.05))  # Room for a line of text on the highest bar.
    for axes, factor in zip(panels, factors, strict=True):
        rows = [row for row in report.dicts() if row["factor"] == factor]
        place = list(range(len(rows)))
        axes.bar([x - 0.2 for x in place], [row["late_share"] or 0 for row in rows], 0.4, color=BLUE, label="left late")
        axes.bar(
            [x + 0.2 for x in place], [row["cancelled_share"] for row in rows], 0.4, color=ORANGE, label="cancelled"
        )
        for x, row in zip(place, rows, strict=True):
            top = max(row["late_share"] or 0, row["cancelled_share"])
            mean = row["mean_dep_delay_min"]
            note = "–" if mean is None else f"{mean:.0f} min"
            axes.annotate(note, (x, top), (0, 3), textcoords="offset points", ha="center", va="bottom", fontsize=9)
        if not rows:
            axes.text(0.5, 0.5, "no flight with a reading", ha="center", transform=axes.transAxes, color="#555555")
        unit = next((row["band"].rpartition(" ")[2] for row in rows if " " in row["band"]), "")
        bands = [row["band"].removesuffix(f" {unit}").replace("under ", "< ") for row in rows]
        labels = [f"{band}\n{_thousands(row['flights'])}" for band, row in zip(bands, rows, strict=True)]
        axes.set_xticks(place, labels, fontsize=8, rotation=0)
        room = max(0.0, (_FEWEST_BANDS - len(rows)) / 2)
        axes.set_xlim(-0.6 - room, len(rows) - 0.4 + room)
        axes.set_title(f"{factor} ({unit})" if unit else factor)
        axes.grid(axis="x", visible=False)
        axes.tick_params(axis="x", length=0)
    panels[0].yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    panels[0].set_ylabel("share of flights")
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside upper right", ncols=2)
    subtitle = (
        "Reading at the origin in the hour of departure, with the number of flights below; on the bars: mean delay;"
        " left late: by more than 15 minutes"
    )
    frame(figure, "Weather against departure delay", subtitle)
    return figure


def _scale(values: list[float]) -> tuple[float, float, str]:
    """Where a colour scale begins and ends, and matplotlib's word for whether some values lie beyond its end.

    It ends at the value that one in twenty exceeds, so that one outlier does not flatten it; of few values at the
    highest. A minute more should not look like an outage, so it has a least length.
    """
    if not values:
        return 0.0, 1.0, "neither"
    ordered = sorted(values)
    low, high = ordered[0], ordered[ceil(0.95 * (len(ordered) - 1))]
    high = max(high, low + _LEAST_SCALE)
    return low, high, "max" if ordered[-1] > high else "neither"


def _thousands(number: int) -> str:
    return f"{number / 1000:.0f}k" if number >= 10_000 else f"{number:,}"


def _short_airline(name: str) -> str:
    for tail in (" Inc.", " Co.", " Corporation"):
        name = name.removesuffix(tail)
    return name


def _short_airport(name: str | None, code: str) -> str:
    if name is None:
        return code
    for long, short in ((" International", ""), (" Airport", ""), (" Regional", ""), ("Metropolitan", "Metro")):
        name = name.replace(long, short)
    return f"{name[:28]} ({code})"
