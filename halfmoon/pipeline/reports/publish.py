"""Reports into files: tables, charts, and a page with both."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from matplotlib.figure import Figure

from halfmoon.pipeline.reports.charts import CHARTS
from halfmoon.pipeline.reports.drawing import save_png, styled
from halfmoon.pipeline.reports.page import Section, write_page
from halfmoon.pipeline.reports.report import Report, save

PUBLISH_EVERY_S = 10.0
"""What goes on makes its page anew so often at most."""

Fact = tuple[str, str]
"""What, and how much: a tile of the page."""

OnReport = Callable[[int, int], None]
"""So many reports are saved and drawn, of so many."""

Charts = Mapping[str, Mapping[str, Callable[[Report], Figure]]]
"""A report's name → its charts by their names."""


@dataclass(slots=True, frozen=True)
class Published:
    """What was made, and where the page is."""

    page: Path
    reports: Sequence[Report]
    facts: Sequence[Fact]
    records: int = 0
    """How many a stream has read for it in this run."""


def publish(
    out: Path,
    name: str,
    title: str,
    reports: Sequence[Report],
    facts: Sequence[Fact],
    source: str,
    charts: Charts | None = None,
    on_report: OnReport = lambda _done, _of: None,
) -> Published:
    """Write OUT/NAME.html, OUT/tables/REPORT.{parquet,csv,md} and OUT/charts/CHART.png.

    `facts` are (what, how much), shown first; `source` says what it is all about. Without `charts` the reports get
    those of charts.py. A report without rows has none. Each file is there whole or not at all. `on_report` hears how
    many of the reports are saved and drawn.
    """
    drawings = {report: {report: draw} for report, draw in CHARTS.items()} if charts is None else charts
    (out / "charts").mkdir(parents=True, exist_ok=True)
    sections = []
    with styled():
        for number, report in enumerate(reports):
            on_report(number, len(reports))
            save(report, out / "tables")
            drawn = {chart: draw(report) for chart, draw in drawings.get(report.name, {}).items() if report.rows}
            for chart, figure in drawn.items():
                save_png(figure, out / "charts" / f"{chart}.png", source)
            sections.append(Section(report, tuple(drawn.values())))
        page = out / f"{name}.html"
        write_page(page, title, facts, sections, made_at=datetime.now(UTC), source=source)
    return Published(page, reports, facts)
