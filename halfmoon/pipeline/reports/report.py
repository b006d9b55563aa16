"""A small result: rows that fit a page, written as Parquet, CSV and Markdown.

Rows are plain Python, collected once from Spark; charts, files and the terminal all show the same numbers. (Not
pandas: which pandas a given pyspark can convert to is a question this package need not ask.)
"""

from __future__ import annotations

import csv
import glob
import os
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from math import inf, isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(slots=True, frozen=True)
class Report:
    """`name` is the file's name and the tag of its rows in the summary topic; the first `key_columns` name a row.

    `if_empty` is what a reader finds in place of a table without rows: why there are none.
    """

    name: str
    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]
    key_columns: int
    if_empty: str = "No rows: nothing of this kind was seen."

    def column(self, name: str) -> list[Any]:
        at = self.columns.index(name)
        return [row[at] for row in self.rows]

    def dicts(self) -> list[dict[str, Any]]:
        return [dict(zip(self.columns, row, strict=True)) for row in self.rows]


def collect(name: str, title: str, frame: DataFrame, key_columns: int) -> Report:
    return Report(name, title, tuple(frame.columns), tuple(tuple(row) for row in frame.collect()), key_columns)


def save(report: Report, directory: Path) -> list[Path]:
    """Write NAME.parquet, NAME.csv and NAME.md, and return the paths.

    Each file is there whole or not at all. A report without rows gives a Parquet file whose columns have the type null.
    """
    import pyarrow
    from pyarrow import parquet

    directory.mkdir(parents=True, exist_ok=True)
    paths = [directory / f"{report.name}.{kind}" for kind in ("parquet", "csv", "md")]
    rows = [tuple(_encodable(value) for value in row) for row in report.rows]
    table = pyarrow.table({name: [row[at] for row in rows] for at, name in enumerate(report.columns)})
    with whole_file(paths[0]) as part:
        parquet.write_table(table, part)
    with whole_file(paths[1]) as part, part.open("w", encoding="utf-8", newline="") as out:
        writer = csv.writer(out)
        writer.writerow(report.columns)
        writer.writerows(rows)
    with whole_file(paths[2]) as part:
        part.write_text(markdown(report), encoding="utf-8")
    return paths


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """Yield a path to write to. It becomes `path` when the block ends well and is removed otherwise.

    So a reader sees the old file or the new one, never half of one. The part's name starts with a dot: Spark and the
    shell pass over what a killed run leaves behind. No fsync: what a power failure takes can be made again.
    """
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    for left in path.parent.glob(f".{glob.escape(path.name)}.*.part"):
        left.unlink(missing_ok=True)  # by a run that was killed
    try:
        yield part
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def markdown(report: Report) -> str:
    """A title and a table; numbers stand to the right. Below a table without rows stands why there are none."""
    lines = [
        f"# {one_line(report.title)}",
        "",
        _line(headings(report)),
        _line(["---:" if number else "---" for number in numeric(report)]),
        *(_line(cells) for cells in shown(report)),
        *([] if report.rows else ["", one_line(report.if_empty)]),
    ]
    return "\n".join(lines) + "\n"


def headings(report: Report) -> list[str]:
    """A heading per column: with its unit, and with UTC where points in time stand."""
    return [
        f"{heading(name)} (UTC)" if any(isinstance(value, datetime) for value in report.column(name)) else heading(name)
        for name in report.columns
    ]


def heading(column: str) -> str:
    """`mean_delay_min` → `mean delay (min)`: the unit is the last word of a column's name, as everywhere here."""
    words = one_line(column).split("_")
    if len(words) > 1 and words[-1] in ("min", "s", "ms", "miles"):
        return f"{' '.join(words[:-1])} ({words[-1]})"
    return " ".join(words)


def numeric(report: Report) -> list[bool]:
    """Which columns hold numbers, and nothing else but None."""
    return [_is_numeric(report.column(name)) for name in report.columns]


def shown(report: Report, some: slice = slice(None)) -> Iterator[list[str]]:
    """The cells of some rows, or of all, as a reader sees them."""
    formats = cell_formats(report).values()
    for row in report.rows[some]:
        yield [of(value) for of, value in zip(formats, row, strict=True)]


def cell_formats(report: Report) -> dict[str, Callable[[object], str]]:
    """How the cells of each column are written.

    The numbers and times of a column have one format, which all of its rows decide: so a column looks the same on the
    page, in the Markdown file and on the terminal, however many of its rows each shows.
    """
    return {name: _cell(report.column(name), name) for name in report.columns}


def show(value: object, column: str = "") -> str:
    """A cell as one line of text; `column` tells that it is a share. Datetimes are in UTC, naive ones taken for it."""
    return _cell([value], column)(value)


def _cell(values: Sequence[object], column: str) -> Callable[[object], str]:
    """How the cells of the column that holds `values` are written."""
    decimals = _decimals([value for value in values if isinstance(value, float)])
    time_format = _time_format([utc(value) for value in values if isinstance(value, datetime)])
    is_share = column.endswith("_share")

    def text(value: object) -> str:
        if value is None:
            return "–"
        if isinstance(value, bool):
            return "yes" if value else "no"
        if isinstance(value, int | float):
            return percent(value) if is_share else f"{value:,.{decimals}f}"
        if isinstance(value, datetime):
            moment = utc(value)
            return moment.strftime(time_format).replace("<ms>", f"{moment.microsecond // 1000:03}")
        return one_line(str(value))

    return text


def _decimals(numbers: Sequence[float]) -> int:
    """None where all are whole; else as many as the smallest needs to be seen: 16.9 beside 3.4, 16.90 beside 0.69,
    10.000 beside 0.001. What is smaller than that is nothing."""
    parts = [abs(number) for number in numbers if isfinite(number) and not number.is_integer()]
    least = min(parts, default=inf)
    return 0 if not parts else 1 if least >= 1 else 2 if least >= 0.01 else 3


def _time_format(moments: Sequence[datetime]) -> str:
    """To the minute where none has seconds; to the millisecond (`<ms>`) where seconds would hardly tell them apart."""
    each, seconds = set(moments), {moment.replace(microsecond=0) for moment in moments}
    if len(each) > 1 and len(each) >= 2 * len(seconds):
        return "%Y-%m-%d %H:%M:%S.<ms>"
    return "%Y-%m-%d %H:%M:%S" if any(moment.second for moment in moments) else "%Y-%m-%d %H:%M"


def percent(share: float) -> str:
    """0.9312 → 93.1%. What is short of all is never shown as 100%, nor what is more than nothing as 0%."""
    text = f"{share:.1%}"
    if text == "100.0%" and share < 1:
        return "> 99.9%"
    return "< 0.1%" if text == "0.0%" and share > 0 else text


def utc(moment: datetime) -> datetime:
    """The same point in time, aware and in UTC; a naive one is taken for UTC."""
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)


def one_line(text: str, longest: int | None = None) -> str:
    """Text that fits any cell, label and file: white space folded, what cannot be shown or encoded replaced by �.

    Text of more than `longest` characters loses its middle: names often differ only at their ends.
    """
    text = " ".join(text.split())
    if not text.isprintable():
        text = "".join("\ufffd" if unicodedata.category(char) in _UNSHOWABLE else char for char in text)
    if longest is not None and len(text) > longest:
        tail = (longest - 1) // 3
        text = f"{text[: longest - 1 - tail]}…{text[len(text) - tail :]}"
    return text


_UNSHOWABLE = ("Cc", "Cn", "Cs")
"""Control characters, code points that are no characters, and halves of surrogate pairs."""


def _encodable(value: Any) -> Any:
    """Half a surrogate pair stands for a byte that was no UTF-8 and has no place in a file: it becomes `\\udc80`."""
    return value.encode("utf-8", "backslashreplace").decode() if isinstance(value, str) else value


def _is_numeric(values: Sequence[object]) -> bool:
    known = [value for value in values if value is not None]
    return bool(known) and all(isinstance(value, int | float) and not isinstance(value, bool) for value in known)


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
