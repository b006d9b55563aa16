"""halfmoon.demo.stages, the parts without broker and JVM (tests/spark/test_demo.py runs them all)."""

from __future__ import annotations

import io
import json

from rich.console import Console

from halfmoon.demo.stages import print_findings, summary_records
from halfmoon.pipeline.reports.report import Report


def test_summary_records_are_named_by_report_and_row() -> None:
    report = Report("by", "", ("a", "b", "n"), (("x", 1, 2.5), ("y", 2, None)), 2)
    whole = Report("all", "", ("n",), ((7,),), 0)
    records = summary_records([report, whole])
    assert [(key, tag) for key, _, tag in records] == [("by/x/1", "by"), ("by/y/2", "by"), ("all", "all")]
    assert json.loads(records[1][1]) == {"a": "y", "b": 2, "n": None}


def test_a_table_that_is_cut_says_of_how_many_rows_and_where_they_are() -> None:
    measures = ("flights", "mean_dep_delay_min", "late_share", "cancelled_share")
    months = tuple(("XX", month, "X Airlines", 500, float(month), 0.2, 0.01) for month in range(1, 13))
    hours = tuple((hour, 500, hour + 0.25, 0.2, 0.01) for hour in range(24))
    routes = tuple(("JFK", "LAX", "Los Angeles", 500, 9.0 - n / 2, 0.2) for n in range(8))
    bands = tuple(("wind", f"{n} mph", n, 500, 9.0, 0.2, 0.01) for n in range(6))
    columns = ("origin", "dest", "dest_name", "flights", "mean_arr_delay_min", "late_share")
    reports = [
        Report("delay_by_carrier_month", "", ("carrier", "month", "airline", *measures), months, 2),
        Report("delay_by_hour", "", ("hour", *measures), hours, 1),
        Report("delay_by_route", "", columns, routes, 2),
        Report("delay_by_weather", "", ("factor", "band", "band_number", *measures), bands, 2),
    ]
    out = io.StringIO()
    print_findings(Console(file=out, width=120), reports)
    lines = [line.rstrip() for line in out.getvalue().splitlines()]
    assert "Worst months of a carrier (5 of 12 rows, all: tables/delay_by_carrier_month.csv)" in lines
    assert "By hour of day (8 of 24 rows, all: tables/delay_by_hour.csv)" in lines
    assert "Worst routes (5 of 8 rows, all: tables/delay_by_route.csv)" in lines
    assert "Weather at the origin (3 of 6 rows, all: tables/delay_by_weather.csv)" in lines
    delays = [line.split()[-2] for line in lines if line.startswith("JFK")]
    assert delays == ["9.0", "8.5", "8.0", "7.5", "7.0"], "one format a column"
