"""Writing results: aligned columns for people, JSON for programs; progress on the side.

Results go to stdout, everything else (progress, notes, errors) to stderr, so that a pipe carries results only.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Container, Iterator, Sequence
from contextlib import contextmanager
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from halfmoon.cli.errors import OutputClosedError

if TYPE_CHECKING:
    import rich.progress

GAP = "  "


class Output(StrEnum):
    """`text` is for people and may change; `json` is for programs and does not lose fields."""

    TEXT = "text"
    JSON = "json"


def write(data: bytes) -> None:
    """Write bytes to stdout as they are. Raises OutputClosedError if nobody reads any more."""
    with _reader_may_leave():
        sys.stdout.flush()
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()


def line(text: str) -> None:
    """Write one line to stdout."""
    write(text.encode("utf-8", "surrogateescape") + b"\n")


def note(text: str) -> None:
    """Tell the person something that is no result: to stderr."""
    print(text, file=sys.stderr, flush=True)


def json_line(value: Any) -> bytes:
    """One JSON value on a line of its own, for results that come as a stream."""
    return json.dumps(value, ensure_ascii=False).encode("utf-8", "surrogatepass") + b"\n"


def json_document(value: Any) -> None:
    """One JSON document, indented."""
    line(json.dumps(value, ensure_ascii=False, indent=2))


def table(rows: Sequence[dict[str, Any]], columns: Sequence[str], numbers: Container[str] = ()) -> None:
    """Aligned columns with a heading. A column's name is its key in upper case; numbers stand to the right, and so do
    the columns `numbers`, of numbers that are text already.

    Plain text on purpose, and never cut to the terminal's width: it is also what grep and awk get.
    """
    cells = [[_cell(row.get(column)) for column in columns] for row in rows]
    headings = [column.replace("_", "-").upper() for column in columns]
    widths = [max(len(row[i]) for row in [headings, *cells]) for i in range(len(columns))]
    right = [
        column in numbers or (bool(rows) and all(_is_number_or_none(row.get(column)) for row in rows))
        for column in columns
    ]
    text = []
    for row in [headings, *cells]:
        aligned = (c.rjust(w) if r else c.ljust(w) for c, w, r in zip(row, widths, right, strict=True))
        text.append(GAP.join(aligned).rstrip())
    write("\n".join(text).encode() + b"\n")


def rows(found: Sequence[dict[str, Any]], columns: Sequence[str], result: Output) -> None:
    """A list as the result of a command: a document with all fields, or a `table` with these columns."""
    if result is Output.JSON:
        json_document(found)
    else:
        table(found, columns)


def described(found: Sequence[dict[str, Any]], show: Callable[[dict[str, Any]], None], result: Output) -> None:
    """Things in detail as the result of a command: a document, or what `show` writes of each, a blank line between."""
    if result is Output.JSON:
        json_document(found)
        return
    for number, each in enumerate(found):
        if number:
            line("")
        show(each)


def facts(pairs: dict[str, Any]) -> None:
    """`name   value` lines, the values aligned."""
    width = max(len(name) for name in pairs)
    write("".join(f"{name.ljust(width)}{GAP}{_cell(value)}\n" for name, value in pairs.items()).encode())


def _is_number_or_none(value: Any) -> bool:
    return value is None or (isinstance(value, (int, float)) and not isinstance(value, bool))


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, (list, tuple)):
        return ",".join(str(item) for item in value) or "-"
    return str(value) if value != "" else "-"


class Progress:
    """How far one piece of work is; without a task in a display, nobody is shown."""

    def __init__(self, task: tuple[rich.progress.Progress, rich.progress.TaskID] | None = None) -> None:
        self._task = task

    def advance(self, count: int = 1) -> None:
        if self._task is not None:
            display, task = self._task
            display.advance(task, count)

    def update(self, done: float, total: int, what: str | None = None) -> None:
        """`what` is being done from now on, where that changes."""
        if self._task is not None:
            display, task = self._task
            display.update(task, completed=done, total=total, description=what)


@contextmanager
def progress(what: str, total: float | None = None, wanted: bool = True, *, alike: bool = True) -> Iterator[Progress]:
    """For work that may take long: it is shown on stderr. Nothing is where stderr is no terminal, or not `wanted`.

    The time that is left is told only of pieces that are `alike`; of others it is the time that has gone.
    """
    if not wanted or not sys.stderr.isatty():
        yield Progress()
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
    from rich.progress import Progress as Display

    clock = TimeRemainingColumn() if alike else TimeElapsedColumn()
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), clock)
    with Display(*columns, console=Console(stderr=True), transient=True) as display:
        yield Progress((display, display.add_task(what, total=total)))


@contextmanager
def status(what: str) -> Iterator[None]:
    """What is being done, on stderr while it is; nothing where stderr is no terminal."""
    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console

    with Console(stderr=True).status(what):
        yield


@contextmanager
def _reader_may_leave() -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:
        # What is still buffered would fail again when Python closes stdout at exit: send it nowhere.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise OutputClosedError from None
