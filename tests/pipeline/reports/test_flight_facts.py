"""halfmoon.pipeline.reports.flight_facts: the tiles of the flights' page."""

from __future__ import annotations

from dataclasses import replace

from halfmoon.pipeline.reports.flight_facts import flight_facts
from halfmoon.pipeline.reports.report import Report
from tests.pipeline.reports.test_flight_charts import ARRIVAL, MEASURES, flight_reports, measures

OVERVIEW = Report("overview", "", (*MEASURES, *ARRIVAL), ((336_776, 8_255, 0.0245, 12.64, -2.0, 0.2112, 6.9, 44.0),), 0)


def facts(**changed: tuple[tuple[object, ...], ...]) -> dict[str, str]:
    """Of the reports of test_flight_charts.py, some with other rows."""
    reports = [replace(report, rows=changed.get(report.name, report.rows)) for report in [OVERVIEW, *flight_reports()]]
    return dict(flight_facts(reports))


def test_the_page_says_first_how_it_is_and_where_it_is_worst() -> None:
    assert facts() == {
        "flights": "336,776",
        "airlines": "3",
        "left late": "21.1%",
        "cancelled": "2.5%",
        "mean departure delay (min)": "12.6",
        "mean arrival delay (min)": "6.9",
        "worst hour to depart": "08:00 · 8.0 min",
        "worst month to depart": "Feb · 2.0 min",
        "route that arrives latest": "JFK → LAX · 12.0 min",
    }


def test_a_month_is_the_mean_of_all_airlines_by_the_flights_that_flew() -> None:
    months = (
        ("XX", 1, "X", *measures(101, 10.0)),
        ("YY", 1, "Y", *measures(301, 2.0)),
        ("XX", 2, "X", *measures(20, 90.0)),  # of which 19 flew
        ("YY", 3, "Y", *measures(500, None)),
    )
    assert facts(delay_by_carrier_month=months)["worst month to depart"] == "Jan · 4.0 min"


def test_what_is_chance_or_not_known_is_not_called_the_worst() -> None:
    few = facts(
        delay_by_carrier_month=(("XX", 1, "X", *measures(3, 10.0)),),
        delay_by_hour=((5, *measures(19, 99.0), 100.0), (6, *measures(50, None), None)),
        delay_by_route=(),
    )
    assert [few[name] for name in list(few)[-3:]] == ["–", "–", "–"]
