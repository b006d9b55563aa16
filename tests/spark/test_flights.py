"""halfmoon.pipeline.reports.flights and flight_reports over a few flights whose numbers can be worked out by hand."""

from __future__ import annotations

import pytest

from halfmoon.demo.source import REFERENCE_TOPICS, strict_json
from halfmoon.pipeline.reports.flight_facts import flight_facts
from halfmoon.pipeline.reports.flight_reports import flight_reports
from halfmoon.pipeline.reports.flights import enrich, reference_tables, typed_flights

RECORD = (
    "key BINARY, value BINARY, headers ARRAY<STRUCT<key: STRING, value: BINARY>>, topic STRING, partition INT,"
    " offset BIGINT, timestamp TIMESTAMP"
)
HOUR = "2013-01-01T10:00:00Z"


def messages(spark, topic_rows):
    rows = [(None, strict_json(row), [], topic, 0, n, None) for n, (topic, row) in enumerate(topic_rows)]
    return spark.createDataFrame(rows, RECORD)


def flight(dest: str, dep_delay: int | None, **other: object) -> dict[str, object]:
    flown = None if dep_delay is None else 600
    base = {"month": 1, "hour": 5, "carrier": "UA", "flight": 1, "tailnum": "N1", "origin": "EWR", "distance": 100}
    times = {"dep_time": flown, "dep_delay": dep_delay, "arr_delay": dep_delay, "time_hour": HOUR}
    return {**base, **times, "dest": dest, **other}


@pytest.fixture(scope="module")
def reports(spark):
    small = {
        "airlines": {"carrier": "UA", "name": "United"},
        "airports": {"faa": "IAH", "name": "Houston", "lat": 30.0, "lon": -95.0},
        "weather": {"origin": "EWR", "time_hour": HOUR, "precip": 0.0, "visib": 0.25, "wind_speed": 7.0},
        "planes": {"tailnum": "N1", "year": 2010},
    }
    flights = [
        flight("IAH", 10),
        flight("IAH", 40),
        flight("IAH", None, tailnum=None),
        flight("XXX", 0, carrier="ZZ", origin="JFK", hour=6),
    ]
    typed = typed_flights(messages(spark, [("flights", row) for row in flights]))
    reference = reference_tables(
        messages(spark, [(REFERENCE_TOPICS[k], v) for k, v in small.items()]), REFERENCE_TOPICS
    )
    enriched = enrich(typed, reference)
    assert enriched.count() == len(flights)
    return {report.name: report for report in flight_reports(enriched, min_route_flights=1)}


def test_overview(reports) -> None:
    [row] = reports["overview"].dicts()
    assert (row["flights"], row["cancelled"], row["cancelled_share"]) == (4, 1, 0.25)
    assert (row["mean_dep_delay_min"], row["median_dep_delay_min"]) == (16.67, 10.0)
    assert row["late_share"] == 0.3333
    assert flight_facts(list(reports.values())) == [
        ("flights", "4"),
        ("airlines", "2"),
        ("left late", "33.3%"),
        ("cancelled", "25.0%"),
        ("mean departure delay (min)", "16.7"),
        ("mean arrival delay (min)", "16.7"),
        ("worst hour to depart", "–"),
        ("worst month to depart", "–"),
        ("route that arrives latest", "EWR → IAH · 25.0 min"),
    ]


def test_carriers_and_hours(reports) -> None:
    rows = reports["delay_by_carrier_month"].dicts()
    assert [(r["carrier"], r["airline"], r["flights"], r["mean_dep_delay_min"]) for r in rows] == [
        ("UA", "United", 3, 25.0),
        ("ZZ", None, 1, 0.0),
    ]
    assert [(r["hour"], r["flights"]) for r in reports["delay_by_hour"].dicts()] == [(5, 3), (6, 1)]


def test_routes_worst_first(reports) -> None:
    rows = reports["delay_by_route"].dicts()
    assert [(r["origin"], r["dest"], r["dest_name"], r["mean_arr_delay_min"]) for r in rows] == [
        ("EWR", "IAH", "Houston", 25.0),
        ("JFK", "XXX", None, 0.0),
    ]


def test_weather_counts_only_hours_with_a_reading(reports) -> None:
    rows = reports["delay_by_weather"].dicts()
    assert [(r["factor"], r["band"], r["flights"], r["cancelled_share"]) for r in rows] == [
        ("precipitation", "none", 3, 0.3333),
        ("visibility", "under 0.5 mi", 3, 0.3333),
        ("wind", "5–10 mph", 3, 0.3333),
    ]


def test_plane_age(reports) -> None:
    assert [(r["band"], r["flights"]) for r in reports["delay_by_plane_age"].dicts()] == [("under 5 years", 3)]


def test_a_value_that_is_no_flight_has_no_columns(spark) -> None:
    row = (None, b"not json", [], "flights", 0, 0, None)
    [parsed] = typed_flights(spark.createDataFrame([row], RECORD)).collect()
    assert parsed["carrier"] is None
    assert bytes(parsed["value"]) == b"not json"
