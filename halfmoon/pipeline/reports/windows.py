"""Windows of time in reports: they begin at multiples of their length since 1970, whatever the session's time zone."""

from __future__ import annotations

from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from halfmoon.pipeline.reports.report import Report
from halfmoon.pipeline.times import utc

MOST_WINDOWS = 60
SECOND, MINUTE, HOUR, DAY = 1_000, 60_000, 3_600_000, 86_400_000
LENGTHS_MS = (SECOND, 5 * SECOND, 15 * SECOND, MINUTE, 5 * MINUTE, 15 * MINUTE, HOUR, 3 * HOUR, 6 * HOUR, DAY, 7 * DAY)


def window_ms(frame: DataFrame, at_ms: str) -> int:
    """The shortest length that cuts the times of a column (ms) into at most 60 windows; a second if there are none."""
    first, last = frame.agg(F.min(at_ms), F.max(at_ms)).collect()[0]
    span = 0 if first is None else last - first
    return next((length for length in LENGTHS_MS if span < MOST_WINDOWS * length), LENGTHS_MS[-1])


def window_start(at_ms: Column, length_ms: int) -> Column:
    """The beginning (ms) of the window that a time (ms) is in."""
    return at_ms - F.pmod(at_ms, F.lit(length_ms))


def collected(name: str, title: str, frame: DataFrame, key_columns: int, times: tuple[str, ...] = ()) -> Report:
    """A report of the frame's rows; the columns in `times` are ms and become datetimes."""
    rows: list[tuple[Any, ...]] = []
    at = [frame.columns.index(column) for column in times]
    for row in frame.collect():
        cells = list(row)
        for index in at:
            cells[index] = None if cells[index] is None else utc(cells[index])
        rows.append(tuple(cells))
    return Report(name, title, tuple(frame.columns), tuple(rows), key_columns)
