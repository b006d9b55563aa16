"""Pages as a browser lays them out: nothing is cut off or scrolls sideways at 1,280 px, and no text lies on another.

One page holds the charts and tables of all cases, so that the browser starts once for a width. A script is added to a
copy of the page (whose own policy forbids scripts), measures, and leaves what it found in the document.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from halfmoon.pipeline.reports.charts import CHARTS
from halfmoon.pipeline.reports.drawing import styled
from halfmoon.pipeline.reports.flight_charts import flight_charts
from halfmoon.pipeline.reports.page import Section, write_page
from halfmoon.pipeline.reports.report import Report
from tests.pipeline.reports import test_charts, test_flight_charts

T0 = datetime(2026, 1, 31, 14, tzinfo=UTC)
HOUR = timedelta(hours=1)
WIDE = "Many columns"
NO_BROWSER = "no Chromium here to lay pages out; test_page.py looks at their structure"
LONG = "a-name-without-a-space-that-somebody-thought-was-a-good-idea-" * 4

BROWSER = next(
    (path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), None
)

MEASURE = """
const found = [], seen = element => element.getBoundingClientRect();
const page = document.documentElement;
if (page.scrollWidth > page.clientWidth) found.push(['page', page.scrollWidth, page.clientWidth]);
for (const box of document.querySelectorAll('.scroll, figure'))
  if (box.scrollWidth > box.clientWidth)
    found.push(['sideways', box.closest('section').querySelector('h2').textContent, box.scrollWidth, box.clientWidth]);
for (const tile of document.querySelectorAll('dd'))
  if (seen(tile).height > 40) found.push(['tile', tile.textContent]);
for (const svg of document.querySelectorAll('svg')) {
  const whole = seen(svg), texts = [...svg.querySelectorAll('text')].filter(text => text.textContent.trim());
  const boxes = texts.map(seen), name = svg.getAttribute('aria-label');
  boxes.forEach((box, n) => {
    const slack = 2;
    if (box.left < whole.left - slack || box.right > whole.right + slack || box.top < whole.top - slack ||
        box.bottom > whole.bottom + slack) found.push(['cut off', name, texts[n].textContent]);
    for (let m = 0; m < n; m++) {
      const wide = Math.min(box.right, boxes[m].right) - Math.max(box.left, boxes[m].left);
      const high = Math.min(box.bottom, boxes[m].bottom) - Math.max(box.top, boxes[m].top);
      if (wide > slack && high > 5) found.push(['overlap', name, texts[m].textContent, texts[n].textContent]);
    }
  });
}
const rows = [...document.querySelectorAll('.scroll')].map(
  box => [...box.querySelectorAll('tbody tr')].filter(row => seen(row).height > 0).length);
document.body.setAttribute('data-found', JSON.stringify({found, rows}));
"""


def cells(name: str, text: str, n: int) -> tuple[Any, ...]:
    """Row `n` of a report, with names that begin with `text`."""
    row = zip(test_charts.COLUMNS[name], test_charts.ANY_ROW[name], strict=True)
    return tuple(
        T0 + n % 48 * HOUR
        if column in ("window_start", "at")
        else (f"{text}{n % 7}" if isinstance(value, str) else value)
        for column, value in row
    )


def cases() -> Iterator[Report]:
    """What each chart and table has to stand: one row, two, three, many, long names, an outage."""
    for name, columns in test_charts.COLUMNS.items():
        for count, text in ((1, "a"), (2, "b"), (3, "c"), (200, "name "), (60, LONG)):
            rows = tuple(cells(name, text, n) for n in range(count))
            yield Report(name, f"{name}: {count} of {text[:8]}", columns, rows, test_charts.KEYS.get(name, 1))
    rates = [(T0 + n * HOUR, 600, 120 if n == 31 else 576, 0, 24, 0.2 if n == 31 else 0.96) for n in range(48)]
    columns = test_charts.COLUMNS["success_rate_by_window"]
    yield Report("success_rate_by_window", "An outage", columns, tuple(rates), 1)
    regions = [(at, region, *more) for at, *more in rates for region in ("europe", "asia")]
    columns = test_charts.COLUMNS["success_rate"]
    yield Report("success_rate", "An outage of regions", columns, tuple(regions), 2)


def flight_cases() -> Iterator[Report]:
    """Tables with as many columns, and numbers as long, as those of a year of flights."""
    for report in test_flight_charts.flight_reports():
        yield replace(report, title=WIDE if len(report.columns) > 10 else report.name)
    for count in (1, 2, 3):
        for report in test_flight_charts.few_flights(count):
            yield replace(report, title=WIDE if len(report.columns) > 10 else f"{report.name}: {count}")
    columns = [*test_flight_charts.ROUTE_COLUMNS, *test_flight_charts.ARRIVAL]
    row = (
        "EWR",
        "CAE",
        "Columbia Metropolitan",
        33.94,
        -81.12,
        1_576,
        *test_flight_charts.measures(336_776, 36.34),
        44.6,
        116.7,
    )
    yield Report("many_columns", WIDE, tuple(columns), (row,) * 188, 2)


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    with styled():
        sections = [Section(report, (CHARTS[report.name](report),)) for report in cases()]
        charts = flight_charts([(-118.4, 33.9)])
        for report in flight_cases():
            sections.append(Section(report, [draw(report) for draw in charts.get(report.name, {}).values()]))
    path = tmp_path_factory.mktemp("layout") / "page.html"
    facts = [("lag", "199,999,839,900"), ("mean departure delay (min)", "12.6"), ("orders", "7")]
    write_page(path, "Everything", facts, sections, made_at=T0, source="made up")
    text = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", path.read_text())
    path.write_text(text.replace("</body>", f"<script>{MEASURE}</script></body>"))
    return path


def measured(page: Path, width: int, profile: Path) -> dict[str, Any]:
    assert BROWSER is not None
    command = [
        BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
        "--disable-component-update", "--disable-sync", f"--user-data-dir={profile}",
        f"--window-size={width},900", "--dump-dom", page.as_uri(),
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    found = re.search(r'data-found="([^"]*)"', done.stdout)
    assert found is not None, done.stderr
    answer: dict[str, Any] = json.loads(unescape(found[1]))
    return answer


@pytest.mark.skipif(BROWSER is None, reason=NO_BROWSER)
@pytest.mark.timeout(240)
def test_nothing_is_cut_off_or_overlaps_at_1280_px(page: Path, tmp_path: Path) -> None:
    answer = measured(page, 1280, tmp_path)
    assert answer["found"] == []
    assert set(answer["rows"]) >= {1, 2, 13}
    assert max(answer["rows"]) <= 16, "a long table shows its first 13 rows"


@pytest.mark.skipif(BROWSER is None, reason=NO_BROWSER)
@pytest.mark.timeout(240)
def test_a_narrow_page_does_not_scroll_as_a_whole(page: Path, tmp_path: Path) -> None:
    """At 800 px a table of thirteen columns scrolls in its box; no chart does, and no text is cut."""
    found = measured(page, 800, tmp_path)["found"]
    assert [each for each in found if each[:2] != ["sideways", WIDE]] == []
