"""What a soak has found, as a page with plots and as docs/soak.md."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from statistics import fmean, median
from typing import Any

from matplotlib.figure import Figure

from halfmoon.pipeline.reports.drawing import BLUE, ORANGE, styled
from halfmoon.pipeline.reports.page import Section, write_page
from halfmoon.pipeline.reports.report import Report

Row = dict[str, float]

LONGEST = "halfmoon_loop_longest_turn_cpu_seconds"
PLOTS: tuple[tuple[str, str, tuple[str, ...], float], ...] = (
    ("Memory", "anonymous memory of the broker, MB", ("rss_anon_mb",), 1),
    ("Descriptors", "open files and sockets of the broker", ("descriptors",), 1),
    ("Produce", "ms from produce to the acknowledgement", ("produce p50 ms", "produce p99 ms"), 1),
    ("End to end", "ms from produce to the consumer", ("end to end p50 ms", "end to end p99 ms"), 1),
    ("Delays", "ms behind the time that was asked for", ("lateness p50 ms", "lateness p99 ms"), 1),
    ("Disk", "data directory, MB", ("disk_mb",), 1),
    ("Load", "records of the stream a second", ("rate",), 1),
    ("Processor", "processors that the broker uses", ("broker_cpu",), 1),
    (
        "Longest turn of the loop",
        "ms of the thread's processor time",
        ("halfmoon_loop_longest_turn_cpu_seconds",),
        1000,
    ),
)
"""Title, what the values are, columns, factor."""


def write_html(path: Path, rows: Sequence[Row], said: dict[str, Any], made_at: datetime) -> None:
    sections = []
    for title, what, columns, factor in PLOTS:
        if any(_known(rows, column) for column in columns):
            names, cells = ("minutes", *columns), _cells(rows, columns, factor)
            report = Report(title.lower().replace(" ", "_"), title, names, cells, key_columns=1)
            sections.append(Section(report, (_figure(rows, ((what, columns, factor),)),), what))
    path.parent.mkdir(parents=True, exist_ok=True)
    write_page(path, "Soak", _facts(rows, said), sections, made_at=made_at, source=_source(said))


ABOUT = (
    "`make soak HOURS=8` runs a broker and a mixed load for hours. In the first tenth of the time, five minutes",
    "at most, the rate follows the processors until they are half busy, everything else that runs on the machine",
    "included. Then it stays. In the end it checks that nothing was lost: every record of the stream is consumed,",
    "each delayed message delivered once, each half message if and only if it was committed, each transaction as",
    "a whole; exit code 1 says what is missing. It writes `out/soak.html` and `out/soak/samples.csv`, and with",
    "`ARGS=--docs` this page.",
)
"""What the page says first."""


def write_docs(folder: Path, rows: Sequence[Row], said: dict[str, Any], made_at: datetime) -> None:
    plots = [(what, columns, factor) for _, what, columns, factor in PLOTS if _known(rows, columns[0])]
    with styled():
        _figure(rows, plots).savefig(folder / "images" / "soak.png", dpi=90)
    lines = ["# Soak", "", *ABOUT, ""]
    lines += [f"{_source(said)}. Written by `make soak HOURS={said['hours']:g} ARGS=--docs` on "
             f"{made_at:%Y-%m-%d}.", "", "| | |", "|---|---|"]  # fmt: skip
    lines += [f"| {what} | {how} |" for what, how in _facts(rows, said)]
    lines += ["", "| | first tenth | median | last tenth | most |", "|---|---:|---:|---:|---:|"]
    for _, what, columns, factor in PLOTS:
        for column in columns:
            found = _known(rows, column)
            if found:
                values = [factor * value for _, value in found]
                tenth = max(1, len(values) // 10)
                cells = [
                    fmean(values[tenth : 2 * tenth] or values),
                    median(values),
                    fmean(values[-tenth:]),
                    max(values),
                ]
                name = f"{what}{', p99' if 'p99' in column else ', p50' if 'p50' in column else ''}"
                lines.append(f"| {name} | " + " | ".join(f"{cell:,.4g}" for cell in cells) + " |")
    lines += ["", "The first tenth begins when the first tenth of the time, in which the rate is found, is over.", "",
              "![What was measured, over time](images/soak.png)"]  # fmt: skip
    (folder / "soak.md").write_text("\n".join(lines) + "\n")


def _source(said: dict[str, Any]) -> str:
    return (
        f"{said['hours']:g} hours of a mixed load at half of {said['processors']} processors: a stream, a group that "
        f"nacks, delays, half messages, transactions, a share group, topics that come and go; `log.flush: sync`"
    )


def _facts(rows: Sequence[Row], said: dict[str, Any]) -> list[tuple[str, str]]:
    sent = said["sent"]
    return [
        ("records of the stream", f"{said['counts'].get('stream sent', 0):,}"),
        ("delayed, half, transactions, shared", ", ".join(f"{count:,}" for _, count in sorted(sent.items()))),
        ("nacked, redelivered", f"{said['counts'].get('nacked', 0):,}, {said['counts'].get('retried', 0):,}"),
        ("lost, doubled or left over", "; ".join(said["problems"]) or "nothing"),
        ("samples", f"{len(rows):,}"),
        ("build", said["build"]),
        (
            "longest turns of the loop, by cause",
            ", ".join(f"{cause} {seconds * 1000:.3g} ms" for cause, seconds in said["longest turns"].items()),
        ),
    ]


def _known(rows: Sequence[Row], column: str) -> list[tuple[float, float]]:
    return [(row["time_s"], row[column]) for row in rows if not math.isnan(row.get(column, math.nan))]


def _cells(rows: Sequence[Row], columns: Sequence[str], factor: float) -> tuple[tuple[float, ...], ...]:
    """Some twenty rows of the run."""
    step = max(1, len(rows) // 20)
    return tuple(
        (round(row["time_s"] / 60, 1), *(round(factor * row[column], 2) for column in columns)) for row in rows[::step]
    )


def _figure(rows: Sequence[Row], plots: Sequence[tuple[str, Sequence[str], float]]) -> Figure:
    with styled():
        figure = Figure(figsize=(9, 2.4 * len(plots)), layout="constrained")
        for number, (what, columns, factor) in enumerate(plots, 1):
            axes = figure.add_subplot(len(plots), 1, number)
            for column, colour in zip(columns, (BLUE, ORANGE), strict=False):
                found = _known(rows, column)
                label = column.split()[-2] if len(columns) > 1 else None
                axes.plot(
                    [at / 60 for at, _ in found], [factor * value for _, value in found], color=colour, label=label
                )
            axes.set_title(what)
            axes.set_ylim(bottom=0)
            axes.set_xlabel("minutes")
            if len(columns) > 1:
                axes.legend()
        return figure
