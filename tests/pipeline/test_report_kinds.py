"""halfmoon.pipeline.jobs.report_kinds: what a page says first. (tests/spark/test_reporting.py makes whole reports.)"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from halfmoon.pipeline.jobs.report_kinds import SuccessRate
from halfmoon.pipeline.reports.report import Report

T0 = datetime(2026, 1, 31, 14, tzinfo=UTC)


def facts(*windows: tuple[int, int]) -> dict[str, str]:
    """Of windows of so many orders, of which so many were paid."""
    columns = ("window_start", "orders", "paid", "late", "missing", "success_share")
    rows = tuple(
        (T0 + n * timedelta(hours=1), orders, paid, 0, orders - paid, paid / orders)
        for n, (orders, paid) in enumerate(windows)
    )
    report = Report("success_rate_by_window", "", columns, rows, 1)
    return dict(SuccessRate("orders").facts({report.name: report}))


def test_the_lowest_window_is_among_the_first_facts() -> None:
    said = facts((1000, 970), (100, 20), (5, 0), (1000, 990))
    assert list(said)[:2] == ["success rate", "lowest window"]
    assert said["lowest window"] == "20.0%", "five orders are too few for a rate"
    assert said["success rate"] == "94.1%"


def test_without_a_window_of_enough_orders_none_is_the_lowest() -> None:
    assert facts((5, 0), (19, 19))["lowest window"] == facts()["lowest window"] == "–"
