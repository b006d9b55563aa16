"""Draw the pictures of docs/pipeline.md: `python tools/report_images.py [DIRECTORY]`.

They are the charts of a report over the orders of a shop that does not exist, whose provider for one region is down for
an hour and a half. What the report would say is known from the shop itself, so neither a broker nor Spark runs.
"""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from pathlib import Path

from halfmoon.pipeline.orders import Counts, Shop
from halfmoon.pipeline.reports.charts import CHARTS
from halfmoon.pipeline.reports.drawing import save_png, styled
from halfmoon.pipeline.reports.report import Report
from halfmoon.pipeline.reports.success_rate import Rules
from halfmoon.pipeline.times import milliseconds, utc

IMAGES = Path(__file__).parents[1] / "docs" / "images"
ORDERS = 60_000
START = datetime(2026, 11, 14, tzinfo=UTC)
SOURCE = f"halfmoon pipeline report success-rate, over {ORDERS:,} orders of a shop that does not exist"

_COUNTS = ("orders", "paid", "late", "missing", "success_share")


def reports(orders: int = ORDERS) -> list[Report]:
    """The two reports that have charts, as `success_rate_reports` makes them of the shop's records."""
    rules = Rules()
    shop = Shop(1, orders, milliseconds(START))
    found = []
    for name, by in (("success_rate_by_window", ()), ("success_rate", ("region",))):
        truth = shop.truth(
            pay_within_ms=rules.ms("pay_within"), late_within_ms=rules.ms("late_within"),
            window_ms=rules.ms("window"), clock_skew_ms=rules.ms("clock_skew"), by=by,
        )  # fmt: skip
        rows = tuple(_row(key, counts) for key, counts in sorted(truth.counts.items()))
        columns = ("window_start", *by, *_COUNTS)
        found.append(Report(name, name, columns, rows, 1 + len(by)))
    return found


def draw(directory: Path, orders: int = ORDERS) -> list[Path]:
    """Write NAME.png of each, and return the paths."""
    directory.mkdir(parents=True, exist_ok=True)
    paths = []
    with styled():
        for report in reports(orders):
            paths.append(directory / f"{report.name}.png")
            save_png(CHARTS[report.name](report), paths[-1], SOURCE)
    return paths


def _row(key: tuple[int | str, ...], counts: Counts) -> tuple[object, ...]:
    start_ms, *values = key
    assert isinstance(start_ms, int)
    return utc(start_ms), *values, *counts, round(counts.paid / counts.orders, 4)


if __name__ == "__main__":
    for path in draw(Path(sys.argv[1]) if len(sys.argv) > 1 else IMAGES):
        print(path)
