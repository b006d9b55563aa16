"""Reports into files: tables, charts, and a page with both."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

from matplotlib.figure import Figure

from halfmoon.pipeline.reports.charts import CHARTS
from halfmoon.pipeline.reports.drawing import save_png, styled
from halfmoon.pipeline.reports.page import Section, write_page
from halfmoon.pipeline.reports.report import Report, save

Charts = Mapping[str, Mapping[str, Callable[[Report], Figure]]]
"""A report's name → its charts by their names."""


def publish(
    out: Path,
    name: str,
    title: str,
    reports: Sequence[Report],
    facts: Sequence[tuple[str, str]],
    source: str,
    charts: Charts | None = None,
) -> Path:
    """Write OUT/NAME.html, OUT/tables/REPORT.{parquet,csv,md} and OUT/charts/CHART.png; where the page is.

    `facts` are (what, how much), shown first; `source` says what it is all about. Without `charts` the reports get
    those of charts.py. A report without rows has none. Each file is there whole or not at all.
    """
    drawings = {report: {report: draw} for report, draw in CHARTS.items()} if charts is None else charts
    (out / "charts").mkdir(parents=True, exist_ok=True)
    sections = []
    with styled():
        for report in reports:
            save(report, out / "tables")
            drawn = {chart: draw(report) for chart, draw in drawings.get(report.name, {}).items() if report.rows}
            for chart, figure in drawn.items():
                save_png(figure, out / "charts" / f"{chart}.png", source)
            sections.append(Section(report, tuple(drawn.values())))
        page = out / f"{name}.html"
        write_page(page, title, facts, sections, made_at=datetime.now(UTC), source=source)
    return page
