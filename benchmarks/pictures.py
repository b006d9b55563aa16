"""One picture for each group of rows: how much better than what it is compared with, with the range of the rounds."""

from __future__ import annotations

import textwrap
from pathlib import Path
from statistics import median

from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullFormatter

from benchmarks.goals import Goal, Reached, Verdict
from halfmoon.pipeline.reports.drawing import BLUE, GREEN, GREY, VERMILION, styled

COLOURS = {
    Verdict.STRETCH: GREEN, Verdict.YES: GREEN, Verdict.CLIENT: BLUE, Verdict.UNSURE: GREY, Verdict.NO: VERMILION,
}  # fmt: skip
TICKS = (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100)
LEAST = 0.001
"""The axis is logarithmic, and what a small load takes of the processor may be nothing."""
ROW_INCHES = 0.42
LINE_LETTERS = 56
DPI = 90


def draw(path: Path, rows: list[tuple[Goal, Reached]]) -> None:
    """A line for each row from its worst to its best round, a dot at the median, a mark at the target. To the right is
    better; 1 is what is compared with, or the target where nothing is."""
    with styled():
        figure = Figure(figsize=(10, 1.3 + ROW_INCHES * len(rows)), layout="constrained")
        axes = figure.add_subplot()
        axes.set_xscale("log")
        shown: list[float] = [1.0]
        for place, (goal, found) in enumerate(rows):
            times = [_times(goal, ratio) for ratio in found.ratios]
            target = _times(goal, goal.target)
            colour = COLOURS[goal.verdict(found)]
            axes.plot([min(times), max(times)], [place, place], color=colour, linewidth=3, solid_capstyle="round")
            axes.plot(median(times), place, "o", color=colour, markersize=7)
            axes.plot(target, place, "|", color="black", markersize=15, markeredgewidth=1.5)
            shown += [*times, target]
        axes.axvline(1, color="#666666", linewidth=0.8)
        axes.set_yticks(range(len(rows)), [_label(goal.title) for goal, _ in rows], fontsize="small")
        axes.set_ylim(len(rows) - 0.4, -0.6)
        axes.set_xlim(0.8 * min(shown), 1.25 * max(shown))
        axes.set_xticks([tick for tick in TICKS if 0.8 * min(shown) <= tick <= 1.25 * max(shown)])
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}×"))
        axes.xaxis.set_minor_formatter(NullFormatter())
        about = "times as good as what it is compared with (dot: median, line: all rounds, mark: target)"
        figure.supxlabel(about, fontsize="medium")
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, dpi=DPI)


def _times(goal: Goal, ratio: float) -> float:
    """How many times better. What is compared with nothing is compared with its target."""
    value = max(ratio if goal.against is not None else ratio / goal.target, LEAST)
    return value if goal.better == "more" else 1 / value


def _label(title: str) -> str:
    return "\n".join(textwrap.wrap(title, LINE_LETTERS))
