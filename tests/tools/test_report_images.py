"""tools/report_images.py: the pictures of docs/pipeline.md can be drawn again, and show what the page says."""

from __future__ import annotations

import re
from pathlib import Path

from tools.report_images import IMAGES, draw, reports

DOCS = (IMAGES.parent / "pipeline.md").read_text(encoding="utf-8")


def test_it_draws_the_pictures_of_the_page(tmp_path: Path) -> None:
    paths = draw(tmp_path, orders=2_000)
    assert [path.name for path in paths] == ["success_rate_by_window.png", "success_rate.png"]
    assert set(re.findall(r"\(images/(\S+?)\)", DOCS)) == {path.name for path in paths}
    sizes = {path.name: path.read_bytes()[16:24] for path in paths}
    assert sizes == {name: (IMAGES / name).read_bytes()[16:24] for name in sizes}, "drawn anew with this code"


def test_the_outage_is_in_them() -> None:
    over_time, by_region = reports(10_000)
    worst = min(by_region.dicts(), key=lambda row: (row["orders"] < 20, row["success_share"]))
    assert worst["region"] == "americas"
    assert worst["window_start"].hour in (20, 21)
    for column in ("orders", "paid", "late", "missing"):
        assert sum(over_time.column(column)) == sum(by_region.column(column)) > 0
