"""halfmoon.pipeline.reports.success_charts: an outage is what one sees first, and nothing of it is cut off."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from math import isnan
from typing import Any

import pytest
from matplotlib.colors import to_rgb
from matplotlib.dates import date2num, num2date
from matplotlib.figure import Figure

from halfmoon.pipeline.reports.charts import CHARTS
from halfmoon.pipeline.reports.drawing import MOST_BARS
from halfmoon.pipeline.reports.report import Report
from halfmoon.pipeline.reports.success_charts import MOST_CELLS

T0 = datetime(2026, 1, 31, 14, tzinfo=UTC)
MINUTE, HOUR = timedelta(minutes=1), timedelta(hours=1)
COUNTS = ("orders", "paid", "late", "missing", "success_share")


def orders(start: datetime, paid: int, late: int = 0, missing: int = 0) -> tuple[Any, ...]:
    count = paid + late + missing
    return start, count, paid, late, missing, paid / count if count else None


def over_time(*rows: tuple[Any, ...]) -> Figure:
    columns = ("window_start", *COUNTS)
    return CHARTS["success_rate_by_window"](Report("success_rate_by_window", "", columns, rows, 1))


def cell(start: datetime, region: str, count: int, share: float) -> tuple[Any, ...]:
    return start, region, count, round(count * share), 0, count - round(count * share), share


def heat_map(rows: Iterable[tuple[Any, ...]], *more_keys: str) -> Figure:
    keys = ("window_start", "region", *more_keys)
    return CHARTS["success_rate"](Report("success_rate", "", (*keys, *COUNTS), tuple(rows), len(keys)))


def said(figure: Figure) -> str:
    return "\n".join(text.get_text() for text in figure.texts)


def labels(ticks: Sequence[Any]) -> list[str]:
    return [tick.get_text() for tick in ticks]


def mesh_of(figure: Figure) -> Any:
    [mesh] = figure.axes[0].collections
    return mesh


def luminance(colour: Any) -> float:
    """Relative luminance of WCAG 2.2, from 0 (black) to 1."""
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in to_rgb(colour)]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: Any, other: Any) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def test_success_over_time() -> None:
    figure = over_time(orders(T0, 90, 6, 4), orders(T0 + HOUR, 45, 5), orders(T0 + 3 * HOUR, 0))
    top, bottom = figure.axes
    [line] = top.lines
    assert [num2date(x) for x in line.get_xdata()] == [T0 + n * HOUR + HOUR / 2 for n in range(4)]
    first, second, *rest = line.get_ydata()
    assert (first, second) == pytest.approx((0.9, 0.9))
    assert all(isnan(share) for share in rest)  # an hour that is not there, and one without orders
    bars = [[(bar.get_y(), bar.get_height()) for bar in part] for part in bottom.containers]
    assert bars == [
        [(0, 90), (0, 45), (0, 0), (0, 0)],
        [(90, 6), (45, 5), (0, 0), (0, 0)],
        [(96, 4), (50, 0), (0, 0), (0, 0)],
    ]
    assert labels(bottom.get_legend().get_texts()) == ["paid", "late", "missing"]
    assert labels(bottom.get_xticklabels())[:2] == ["14:00\n31 Jan 2026", "15:00"]
    assert "90.0% of 150 orders" in said(figure)
    assert "each bar: 1 h" in said(figure)
    assert not top.texts, "nothing stands out"


def test_many_windows_share_bars() -> None:
    rows = [orders(T0 + n * 5 * MINUTE, 8 + n % 2, 2 - n % 2) for n in range(2016)]
    figure = over_time(*rows)
    top, bottom = figure.axes
    paid = [bar.get_height() for bar in bottom.containers[0]]
    assert len(paid) <= MOST_BARS
    assert sum(paid) == sum(row[2] for row in rows)
    assert max(paid) == 24 * 8.5  # two hours hold 24 windows
    assert "each bar: 2 h" in said(figure)
    assert top.lines[0].get_ydata()[1] == pytest.approx(0.85)
    assert bottom.containers[0][0].get_center()[0] == pytest.approx(date2num(T0 + HOUR))


@pytest.mark.parametrize("at", [0, 1, 24, 46, 47])
def test_an_outage_is_drawn_to_its_ground_and_says_when_it_was(at: int) -> None:
    figure = over_time(*(orders(T0 + n * HOUR, 20 if n == at else 97, 3) for n in range(48) if n != 5))
    top = figure.axes[0]
    share = 20 / 23
    low, high = top.get_ylim()
    assert low < share < 1 < high
    assert min(y for y in top.lines[0].get_ydata() if not isnan(y)) == pytest.approx(share)
    [note] = top.texts
    hour = T0 + at * HOUR
    assert note.get_text() == f"87.0% at {hour:%H:%M}, {hour.day} {hour:%b}"
    assert note.xy == (pytest.approx(date2num(hour + HOUR / 2)), pytest.approx(share))
    figure.draw_without_rendering()
    box = note.get_window_extent()
    assert 0 <= box.x0 < box.x1 <= figure.bbox.width, "the note is cut off"


def test_an_outage_that_shares_its_bar_with_good_windows_is_drawn_too() -> None:
    """Two weeks of five-minute windows: five minutes of loss would raise the mean of a bar by nothing one can see."""
    rows = [orders(T0 + n * 5 * MINUTE, 12 if n == 1000 else 59, 48 if n == 1000 else 1) for n in range(4032)]
    top = over_time(*rows).axes[0]
    whole, lowest = top.lines
    assert min(whole.get_ydata()) > 0.9
    assert min(lowest.get_ydata()) == pytest.approx(0.2)
    assert top.get_ylim()[0] < 0.2
    assert [text.get_text()[:5] for text in top.texts] == ["20.0%"]
    assert labels(top.get_legend().get_texts())[1].startswith("the lowest of them")


def test_a_window_with_few_orders_is_not_called_an_outage() -> None:
    top = over_time(*(orders(T0 + n * HOUR, 0 if n == 7 else 97, 3) for n in range(48))).axes[0]
    assert min(top.lines[0].get_ydata()) == 0
    assert not top.texts


def test_the_axis_does_not_make_an_outage_of_a_tenth_of_a_percent() -> None:
    top = over_time(*(orders(T0 + n * HOUR, 9990 + n % 3, 10 - n % 3) for n in range(48))).axes[0]
    assert top.get_ylim()[0] <= 0.95


def test_the_heat_map_has_the_colours_of_the_loss_and_all_of_it() -> None:
    """One hour of 48 in which the rate falls to 20%: the scale that was cut at 90% showed it as it showed 90%."""
    figure = heat_map(
        cell(T0 + n * HOUR, region, 200, 0.2 if n == 31 and region == "asia" else 0.94 + n % 5 / 100)
        for n in range(48)
        for region in ("europe", "asia")
    )
    mesh = mesh_of(figure)
    losses = mesh.get_array().reshape(2, 48)
    assert losses[0][31] == pytest.approx(0.8), "asia is first of those with equal numbers"
    assert (mesh.norm.vmin, mesh.norm.vmax) == (0, pytest.approx(0.8))
    assert mesh.norm.vmax >= losses.max(), "no cell lies beyond the scale"
    assert mesh.colorbar.extend == "neither"
    assert figure.axes[1].get_ylabel() == "loss"
    assert "loss, the share not paid in time" in said(figure)
    outage, normal = (mesh.cmap(mesh.norm(loss))[:3] for loss in (0.8, 0.06))
    assert contrast(outage, normal) > 7
    assert [text.get_text() for text in figure.axes[0].texts] == ["80%"]
    assert contrast(figure.axes[0].texts[0].get_color(), outage) > 4.5


def test_the_colours_grow_darker_with_the_loss_for_every_eye() -> None:
    mesh = mesh_of(heat_map([cell(T0, "asia", 100, 0.5), cell(T0, "europe", 100, 0.9)]))
    scale = [luminance(mesh.cmap(n / 20)[:3]) for n in range(21)]
    assert all(darker < lighter for lighter, darker in pairwise(scale)), "legible in grey"
    assert scale[0] > 0.8
    assert scale[-1] < 0.05


@pytest.mark.parametrize(
    ("share", "most"), [(1.0, 0.2), (0.99, 0.2), (0.8, 0.2), (0.79, 0.3), (0.2, 0.8), (0.1, 0.9), (0.0, 1.0)]
)
def test_the_scale_ends_at_a_round_number_beyond_the_worst(share: float, most: float) -> None:
    assert mesh_of(heat_map([cell(T0, "asia", 100, share)])).norm.vmax == pytest.approx(most)


def test_a_heat_map_has_the_busiest_above() -> None:
    rows = (
        (T0, "EU", None, 40, 30, 5, 5, 0.75),
        (T0, "US", "web", 100, 90, 10, 0, 0.9),
        (T0 + HOUR, "EU", None, 19, 19, 0, 0, 1.0),
        (T0 + 2 * HOUR, "EU", None, 50, 50, 0, 0, 1.0),
    )
    figure = heat_map(rows, "channel")
    axes = figure.axes[0]
    assert labels(axes.get_yticklabels()) == ["EU · – (109)", "US · web (100)"]
    assert axes.yaxis_inverted()
    grid = mesh_of(figure).get_array().filled(-1).reshape(2, 3)
    assert grid.tolist() == [pytest.approx([0.25, -1, 0]), pytest.approx([0.1, -1, -1])]  # 19 orders are too few
    assert "Success rate by region · channel" in said(figure)
    assert "hatched: fewer than 20 orders" in said(figure)
    assert axes.patch.get_hatch()


def test_a_cell_of_several_windows_has_the_loss_of_the_worst_of_them() -> None:
    share = {(1000, "asia"): 0.2}
    figure = heat_map(
        cell(T0 + n * 5 * MINUTE, region, 60, share.get((n, region), 0.95))
        for n in range(4032)
        for region in ("asia", "eu")
    )
    mesh = mesh_of(figure)
    assert mesh.get_array().size <= 2 * MOST_CELLS
    assert sorted(mesh.get_array().ravel())[-2:] == [pytest.approx(0.05), pytest.approx(0.8)]
    assert "with the loss of its worst window" in said(figure)


def test_windows_that_are_too_few_alone_are_not_when_they_share_a_cell() -> None:
    figure = heat_map(cell(T0 + n * MINUTE, "asia", 5, 0.8) for n in range(60 * MOST_CELLS))
    losses = mesh_of(figure).get_array().filled(-1).ravel().tolist()
    assert losses == pytest.approx([0.2] * 30)


def test_a_heat_map_without_a_cell_that_can_be_coloured_says_why() -> None:
    figure = heat_map(cell(T0 + n * HOUR, "asia", 5, 0.8) for n in range(24))
    [axes] = figure.axes
    assert labels(axes.texts) == ["No cell has 20 orders: too few for a rate"]


def test_of_many_values_the_busiest_are_shown_and_the_worst_of_the_others() -> None:
    rows = [
        cell(T0 + n * HOUR, f"R{region:02}", 50 + region, 0.1 if region == 1 and n == 200 else 0.95)
        for n in range(24 * 14)
        for region in range(30)
    ]
    figure = heat_map(rows)
    shown = labels(figure.axes[0].get_yticklabels())
    assert len(shown) == 20
    assert shown[0] == "R29 (26,544)"
    assert shown[14] == "R15 (21,840)"
    assert shown[-1] == "R01 (17,136)", "few orders, and an outage"
    mesh = mesh_of(figure)
    assert mesh.get_array().size <= 20 * MOST_CELLS
    assert mesh.get_array().max() == pytest.approx(0.9)
    assert "The 15 with most orders and the 5 worst of the others; 10 more are not shown" in said(figure)
    assert "each cell: 6 h" in said(figure)


def test_of_few_windows_each_cell_says_what_it_is() -> None:
    few = heat_map(cell(T0 + n * HOUR, region, 100, 0.95) for n in range(3) for region in ("asia", "eu"))
    assert labels(few.axes[0].texts) == ["5%"] * 6
    many = heat_map(cell(T0 + n * HOUR, region, 100, 0.95) for n in range(24) for region in ("asia", "eu"))
    assert labels(many.axes[0].texts) == []


def test_the_ticks_of_an_axis_have_one_format() -> None:
    top = over_time(*(orders(T0 + n * HOUR, 90 - n, 10 + n) for n in range(4))).axes[0]
    top.set_yticks([0.85, 0.875, 0.9, 1.0])
    top.figure.draw_without_rendering()
    assert labels(top.get_yticklabels()) == ["85.0%", "87.5%", "90.0%", "100.0%"]
