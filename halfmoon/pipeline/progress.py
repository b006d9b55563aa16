"""Long work on the terminal: bars where somebody watches, nothing in a log file."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn

if TYPE_CHECKING:
    from pyspark.sql.streaming import StreamingQuery


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


def follow(shown: Bar) -> Callable[[StreamingQuery], None]:
    """A callback for `ingest`: rows so far, rows a second and the batch's number, from the query's recent progress."""

    def update(query: StreamingQuery) -> None:
        finished = query.recentProgress
        if finished:
            records = sum(p["numInputRows"] for p in finished)
            rate = finished[-1].get("processedRowsPerSecond") or 0
            shown.at(records, f"batch {finished[-1]['batchId']} · {rate:,.0f} rows/s")

    return update
