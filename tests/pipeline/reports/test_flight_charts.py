"""halfmoon.pipeline.reports.flight_charts: the data behind the pictures, and that every picture can be drawn."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from matplotlib.text import Text

from halfmoon.pipeline.reports import flight_charts
from halfmoon.pipeline.reports.drawing import styled
from halfmoon.pipeline.reports.publish import publish
from halfmoon.pipeline.reports.report import Report

MEASURES = ("flights", "cancelled", "cancelled_share", "mean_dep_delay_min", "median_dep_delay_min", "late_share")

ROUTE_COLUMNS = ("origin", "dest", "dest_name", "dest_lat", "dest_lon", "distance_miles", *MEASURES)
ARRIVAL = ("mean_arr_delay_min", "p90_arr_delay_min")


def measures(flights: int, mean: float | None) -> tuple[object, ...]:
    return (flights, 1, 0.01, mean, mean, None if mean is None else 0.2)


@pytest.fixture
def reports() -> list[Report]:
    return flight_reports()


def flight_reports() -> list[Report]:
    months = tuple(
        (carrier, month, f"{carrier} Airlines Inc.", *measures(flights, float(month)))
        for carrier, flights in (("XX", 100), ("YY", 300), ("ZZ", 3))
        for month in (1, 2)
    )
    hours = tuple((hour, *measures(50, float(hour)), 30.0) for hour in range(5, 9))
    routes = (
        ("JFK", "LAX", "Los Angeles Intl", 33.9, -118.4, 2475, *measures(500, 9.0), 12.0, 40.0),
        ("EWR", "BQN", None, None, None, 1576, *measures(200, 5.0), 8.0, 30.0),
    )
    bands = tuple(
        (factor, f"{band} mi", number, *measures(10 * (number + 1), mean))
        for factor in ("visibility", "wind", "precipitation")
        for number, (band, mean) in enumerate((("under 1", 3.0), ("1+", None)))
    )
    return [
        Report("delay_by_carrier_month", "", ("carrier", "month", "airline", *MEASURES), months, 2),
        Report("delay_by_hour", "", ("hour", *MEASURES, "p90_dep_delay_min"), hours, 1),
        Report("delay_by_route", "", (*ROUTE_COLUMNS, *ARRIVAL), routes, 2),
        Report("delay_by_weather", "", ("factor", "band", "band_number", *MEASURES), bands, 2),
    ]


def few_flights(count: int) -> list[Report]:
    """So many rows for each chart and panel, with bars up to the top and delays beside each other and at nothing."""
    months = tuple((f"X{n}", 1 + n, f"X{n} Airlines Inc.", *measures(100, 10.0 + n)) for n in range(count))
    hours = tuple((21 + n, *measures(50, 0.0), 0.0) for n in range(count))
    places = (("BOS", "Boston Logan", 42.4, -71.0), ("BGR", "Bangor", 44.8, -68.8), ("PVD", "Providence", 41.7, -71.4))
    routes = tuple(
        ("JFK", dest, name, lat, lon, 187, *measures(500, 9.0), 9.0, 40.0) for dest, name, lat, lon in places[:count]
    )
    bands = tuple(
        (factor, f"{n} mi", n, 20, 1, 0.05, 9.0, 9.0, 1.0)
        for factor in ("visibility", "wind", "precipitation")
        for n in range(count)
    )
    rows = (months, hours, routes, bands)
    return [replace(report, rows=few) for report, few in zip(flight_reports(), rows, strict=True)]


def test_every_chart_is_drawn(reports: list[Report], tmp_path: Path) -> None:
    charts = flight_charts.flight_charts([(-118.4, 33.9)])
    page = publish(tmp_path, "flights", "Flights", reports, [], "the source", charts).page
    paths = sorted((tmp_path / "charts").iterdir())
    assert [path.name for path in paths] == [
        "delay_by_carrier_month.png",
        "delay_by_hour.png",
        "delay_by_weather.png",
        "delay_map.png",
        "worst_routes.png",
    ]
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in paths)
    assert page.read_text().count("<svg") == len(paths)
    assert len(list((tmp_path / "tables").iterdir())) == 3 * len(reports)


def test_a_report_without_rows_draws_nothing(reports: list[Report], tmp_path: Path) -> None:
    empty = [Report(report.name, "", report.columns, (), 1) for report in reports]
    page = publish(tmp_path, "flights", "Flights", empty, [], "", flight_charts.flight_charts([])).page
    assert list((tmp_path / "charts").iterdir()) == []
    assert "<svg" not in page.read_text()


def test_the_grid_has_the_busiest_first_and_leaves_out_chance(reports: list[Report]) -> None:
    labels, grid = flight_charts.carrier_grid(reports[0])
    assert labels == ["YY Airlines (600)", "XX Airlines (200)", "ZZ Airlines (6)"]
    assert grid[0][:3] == [1.0, 2.0, None]
    assert grid[2] == [None] * 12


def test_routes_stand_in_order_with_their_names(reports: list[Report]) -> None:
    axes = flight_charts.worst_routes(reports[2]).axes[0]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["JFK → Los Angeles Intl (LAX)", "EWR → BQN"]
    assert [bar.get_width() for bar in axes.patches] == [12.0, 8.0]


def test_weather_without_a_reading_says_so(reports: list[Report]) -> None:
    rows = tuple(row for row in reports[3].rows if row[0] == "visibility")
    panels = flight_charts.weather(Report("delay_by_weather", "", reports[3].columns, rows, 2)).axes
    assert [(axes.get_title("left") or axes.get_title()) for axes in panels] == [
        "visibility (mi)",
        "wind",
        "precipitation",
    ]
    assert ["no flight with a reading" in [text.get_text() for text in axes.texts] for axes in panels] == [0, 1, 1]


def test_labels_of_places_near_each_other_do_not_lie_on_each_other() -> None:
    taken: list[tuple[float, float]] = []
    sides = [flight_charts._free_side(-90, 40, taken) for _ in range(4)]
    assert len(set(sides)) == 4
    for n, (x, y) in enumerate(taken):
        assert all(abs(x - other_x) >= 3.6 or abs(y - other_y) >= 0.8 for other_x, other_y in taken[:n])


@pytest.mark.parametrize("count", [1, 2, 3])
def test_few_rows_are_drawn_without_a_label_on_another_or_outside(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    charts = flight_charts.flight_charts([(-118.4, 33.9)])
    drawn: list[Text] = []  # Of the ticks, matplotlib draws those within the axis.
    draw_text = Text.draw
    monkeypatch.setattr(Text, "draw", lambda text, renderer: (drawn.append(text), draw_text(text, renderer)))
    with styled():
        for report in few_flights(count):
            for draw in charts[report.name].values():
                figure = draw(report)
                figure.draw_without_rendering()  # which lays it out, and draws it
                drawn.clear()
                figure.draw_without_rendering()
                texts = dict.fromkeys(text for text in drawn if text.get_text().strip())
                boxes = [(text.get_text(), text.get_window_extent()) for text in texts]
                assert len(boxes) > 4
                for n, (text, box) in enumerate(boxes):
                    assert box.x0 >= -1, text
                    assert box.x1 <= figure.bbox.width + 1, text
                    for other, taken in boxes[:n]:
                        wide = min(box.x1, taken.x1) - max(box.x0, taken.x0)
                        high = min(box.y1, taken.y1) - max(box.y0, taken.y0)
                        assert wide <= 2 or high <= 5, (figure.get_label(), text, other)


def test_hours_of_few_flights_are_not_drawn_and_it_says_why(reports: list[Report]) -> None:
    rows = tuple((hour, *measures(19 if hour < 7 else 20, 5.0), 9.0) for hour in range(5, 9))
    some = flight_charts.hours(replace(reports[1], rows=rows))
    assert [bar.get_center()[0] for bar in some.axes[1].patches] == pytest.approx([7, 8])
    assert "2 with fewer than 20 are left out" in some.texts[1].get_text()
    none = flight_charts.hours(replace(reports[1], rows=rows[:2]))
    assert none.axes == []
    assert none.texts[1].get_text() == "No hour has 20 flights: too few for a mean."


@pytest.mark.parametrize(
    ("values", "scale"),
    [
        ([], (0.0, 1.0, "neither")),
        ([7.0], (7.0, 12.0, "neither")),
        ([7.0, 7.5], (7.0, 12.0, "neither")),
        ([7.0, 30.0], (7.0, 30.0, "neither")),
        ([0.0, *[float(n) for n in range(40)], 500.0], (0.0, 38.0, "max")),
    ],
)
def test_a_scale_of_colours_reaches_to_the_highest_of_few(values: list[float], scale: tuple[float, float, str]) -> None:
    assert flight_charts._scale(values) == scale
