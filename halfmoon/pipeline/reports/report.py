"""A small result: rows that fit a page, written as Parquet, CSV and Markdown.

Rows are plain Python, collected once from Spark; charts, files and the terminal all show the same numbers. (Not
pandas: which pandas a given pyspark can convert to is a question this package need not ask.)
"""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(slots=True, frozen=True)
class Report:
    """`name` is the file's name and the tag of its rows in the summary topic; the first `key_columns` name a row."""

    name: str
    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]
    key_columns: int

    def column(self, name: str) -> list[Any]:
        at = self.columns.index(name)
        return [row[at] for row in self.rows]

    def dicts(self) -> list[dict[str, Any]]:
        return [dict(zip(self.columns, row, strict=True)) for row in self.rows]


def collect(name: str, title: str, frame: DataFrame, key_columns: int) -> Report:
    return Report(name, title, tuple(frame.columns), tuple(tuple(row) for row in frame.collect()), key_columns)


def save(report: Report, directory: Path) -> list[Path]:
    """Write NAME.parquet, NAME.csv and NAME.md, and return the paths."""
    import pyarrow
    from pyarrow import parquet

    directory.mkdir(parents=True, exist_ok=True)
    paths = [directory / f"{report.name}.{kind}" for kind in ("parquet", "csv", "md")]
    parquet.write_table(pyarrow.table({name: report.column(name) for name in report.columns}), paths[0])
    with paths[1].open("w", newline="") as out:
        writer = csv.writer(out)
        writer.writerow(report.columns)
        writer.writerows(report.rows)
    paths[2].write_text(markdown(report))
    return paths


def markdown(report: Report) -> str:
    """A title and a table; numbers stand to the right."""
    numeric = [_is_numeric(report.column(name)) for name in report.columns]
    lines = [
        f"# {report.title}",
        "",
        _line([heading(name) for name in report.columns]),
        _line(["---:" if number else "---" for number in numeric]),
        *(_line([show(value) for value in row]) for row in report.rows),
    ]
    return "\n".join(lines) + "\n"


def heading(column: str) -> str:
    """`mean_delay_min` → `mean delay (min)`: the unit is the last word of a column's name, as everywhere here."""
    words = column.split("_")
    units = {"min": "min", "share": "share", "miles": "miles"}
    if len(words) > 1 and words[-1] in units and words[-1] != "share":
        return f"{' '.join(words[:-1])} ({units[words[-1]]})"
    return " ".join(words)


def show(value: object) -> str:
    if value is None:
        return "–"
    if isinstance(value, float):
        return f"{value:,.2f}" if abs(value) < 1 else f"{value:,.1f}"
    if isinstance(value, int):
        return f"{value:,}"
    return str(value).replace("|", "\\|")


def _is_numeric(values: Sequence[object]) -> bool:
    return any(value is not None for value in values) and all(
        value is None or isinstance(value, int | float) for value in values
    )


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
