"""What the page of the flights says first: totals of all flights, and where delay is worst."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from halfmoon.pipeline.reports.flight_charts import FEWEST_IN_CELL, MONTHS
from halfmoon.pipeline.reports.publish import Fact
from halfmoon.pipeline.reports.report import Report, show


def flight_facts(reports: Sequence[Report]) -> list[Fact]:
    """From `flight_reports`. The worst of anything is looked for where at least 20 flights are, as in the charts."""
    rows = {report.name: report.dicts() for report in reports}
    [whole] = rows["overview"]
    months = rows["delay_by_carrier_month"]
    return [
        ("flights", show(whole["flights"])),
        ("airlines", show(len({row["carrier"] for row in months}))),
        ("left late", show(whole["late_share"], "late_share")),
        ("cancelled", show(whole["cancelled_share"], "cancelled_share")),
        ("mean departure delay (min)", show(whole["mean_dep_delay_min"])),
        ("mean arrival delay (min)", show(whole["mean_arr_delay_min"])),
        ("worst hour to depart", _worst(_hours(rows["delay_by_hour"]))),
        ("worst month to depart", _worst(_months(months))),
        ("route that arrives latest", _worst(_routes(rows["delay_by_route"]))),
    ]


_Mean = tuple[str, float]
"""What, and its mean delay in minutes."""


def _hours(rows: Iterable[dict[str, Any]]) -> list[_Mean]:
    known = (row for row in rows if row["flights"] >= FEWEST_IN_CELL and row["mean_dep_delay_min"] is not None)
    return [(f"{row['hour']:02}:00", row["mean_dep_delay_min"]) for row in known]


def _months(rows: Iterable[dict[str, Any]]) -> list[_Mean]:
    """Of all airlines together: their means, weighed by the flights that flew."""
    flown: dict[int, int] = defaultdict(int)
    minutes: dict[int, float] = defaultdict(float)
    for row in rows:
        if row["mean_dep_delay_min"] is not None:
            flights = row["flights"] - row["cancelled"]
            flown[row["month"]] += flights
            minutes[row["month"]] += flights * row["mean_dep_delay_min"]
    enough = sorted(month for month, flights in flown.items() if flights >= FEWEST_IN_CELL)
    return [(MONTHS[month - 1], minutes[month] / flown[month]) for month in enough]


def _routes(rows: Iterable[dict[str, Any]]) -> list[_Mean]:
    """The report has left out those with few flights."""
    known = (row for row in rows if row["mean_arr_delay_min"] is not None)
    return [(f"{row['origin']} → {row['dest']}", row["mean_arr_delay_min"]) for row in known]


def _worst(means: Sequence[_Mean]) -> str:
    """The first of those with the highest mean, and that; a dash where there is none."""
    if not means:
        return show(None)
    what, minutes = max(means, key=lambda mean: mean[1])
    return f"{what} · {minutes:,.1f} min"
