"""halfmoon.pipeline.reports.flight_reports without a JVM: names of bands (the numbers: tests/spark/test_flights.py)."""

from __future__ import annotations

from halfmoon.pipeline.reports.flight_reports import band_labels


def test_bands_have_one_name_more_than_bounds() -> None:
    assert band_labels([1, 5.5], "mi") == ["under 1 mi", "1–5.5 mi", "5.5+ mi"]


def test_a_bound_next_to_nothing_means_none() -> None:
    assert band_labels([0.001, 0.02], "in/h") == ["none", "0–0.02 in/h", "0.02+ in/h"]
