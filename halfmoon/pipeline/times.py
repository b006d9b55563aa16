"""Points in time: in milliseconds since 1970 wherever they are reckoned with, as Python datetimes for people.

PySpark hands out timestamps without a zone, in that of the machine; so what leaves Spark are numbers.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

FIRST_MS, LAST_MS = -62_135_596_800_000, 253_402_300_799_999
"""The years 1 to 9999: what Python and Parquet's readers have dates for. Some producers write microseconds."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def milliseconds(moment: datetime) -> int:
    """Unix ms of a time; one without a zone is UTC, so that a program means the same on every machine."""
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return round(moment.timestamp() * 1000)


def utc(ms: int) -> datetime:
    """The time of Unix ms; the first or last one that Python has for what lies beyond."""
    return _EPOCH + timedelta(milliseconds=max(FIRST_MS, min(ms, LAST_MS)))
