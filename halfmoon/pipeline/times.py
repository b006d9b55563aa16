"""Points in time: in milliseconds since 1970 wherever they are reckoned with, as Python datetimes for people; waiting.

PySpark hands out timestamps without a zone, in that of the machine; so what leaves Spark are numbers.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

FIRST_MS, LAST_MS = -62_135_596_800_000, 253_402_300_799_999
"""The years 1 to 9999: what Python and Parquet's readers have dates for. Some producers write microseconds."""

_POLL_S = 0.1
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def milliseconds(moment: datetime) -> int:
    """Unix ms of a time; one without a zone is UTC, so that a program means the same on every machine."""
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return round(moment.timestamp() * 1000)


def utc(ms: int) -> datetime:
    """The time of Unix ms; the first or last one that Python has for what lies beyond."""
    return _EPOCH + timedelta(milliseconds=max(FIRST_MS, min(ms, LAST_MS)))


def interruptible_wait(until: float, on_tick: Callable[[], None]) -> None:
    """Until a moment of the monotonic clock (s), with `on_tick` called some times a second, once at least."""
    on_tick()
    while (left := until - time.monotonic()) > 0:
        time.sleep(min(left, _POLL_S))
        on_tick()
