"""Long work on the terminal: bars where somebody watches, nothing in a log file."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn

if TYPE_CHECKING:
    from halfmoon.pipeline.queries import Batch, OnBatch


class Bar:
    """One bar with a total, counting records."""

    def __init__(self, progress: Progress, task: TaskID) -> None:
        self._progress = progress
        self._task = task

    def at(self, records: int, note: str = "") -> None:
        """Set the bar to `records` done so far."""
        self._progress.update(self._task, completed=records, note=note)


@contextmanager
def bar(console: Console, what: str, total: int | None) -> Iterator[Bar]:
    """A bar while the block runs; it goes away afterwards, so that a line with the result can take its place.

    `total` None is work of unknown length: the bar pulses.
    """
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(bar_width=32),
        *((MofNCompleteColumn(),) if total is not None else ()),
        TextColumn("[dim]{task.fields[note]}"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        yield Bar(progress, progress.add_task(what, total=total, note=""))


def follow(shown: Bar) -> OnBatch:
    """A callback for queries that moves a bar by the rows of each batch."""
    rows = 0

    def update(batch: Batch) -> None:
        nonlocal rows
        rows += batch.rows
        shown.at(rows, f"batch {batch.number} · {batch.rows_per_s:,.0f} rows/s")

    return update


def batch_line(batch: Batch) -> str:
    """What a batch did, for people: `orders  batch 12  60,000 rows  0.5 s  120,000 rows/s  lag 1,200`."""
    return (
        f"{batch.query}  batch {batch.number}  {batch.rows:,} rows  {batch.seconds:.1f} s"
        f"  {batch.rows_per_s:,.0f} rows/s  lag {batch.lag:,}"
    )
