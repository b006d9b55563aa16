"""When a cron expression is due, in a time zone: Unix ms, whole seconds.

cronsim reads the expressions and finds the times, as Debian's cron has them:

    30 2 * * *   a time of the day that a clock which is put forward leaps over is kept right behind the leap, once;
                 one that it passes twice when it is put back is kept the first time
    */15 * * * * what has a star for the minute or the hour goes on at its pace: it is kept as often as the clock shows
                 it, and a leap takes its times away
    0 30 2 * * * so does every expression of six fields, of which the first is the second

If both the day of the month and the day of the week are given, either is enough; if one of them begins with a star,
both have to be right.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from functools import lru_cache
from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from datetime import tzinfo

MAX_CHARACTERS = 200
"""Of an expression."""
MOST_COUNTED = 100
"""Times that are counted as missed at once: there are that many, or more. It takes two milliseconds."""
SHORTEST_MS, WIDER = 60_000, 8
"""How much further back is looked for the newest time that was missed, if there is none."""


def zone_named(name: str) -> tzinfo:
    """Raises ValueError."""
    if name == "UTC":
        return UTC
    from zoneinfo import ZoneInfo  # two milliseconds of each start, and few need it

    try:
        return ZoneInfo(name)
    except (OSError, LookupError, ValueError):  # a folder; no such zone; a path that leads out of the database
        raise ValueError(f"there is no time zone {name[:60]!r}") from None


def check(cron: str, zone: str) -> None:
    """Raises ValueError for what is no cron expression or no time zone, or for one that is never due."""
    from cronsim import CronSimError

    if len(cron) > MAX_CHARACTERS:
        raise ValueError(f"a cron expression has at most {MAX_CHARACTERS} characters")
    if not cron.isascii():  # "²" is a digit for Python
        raise ValueError(f"cron expression {cron!r}: it is not ASCII")
    try:
        soonest = next(_times(cron, zone, 0), None)
    except CronSimError as error:
        raise ValueError(f"cron expression {cron!r}: {str(error).lower()}") from None
    if soonest is None:
        raise ValueError(f"cron expression {cron!r}: it is never due")


def _times(cron: str, zone: str, after_ms: int) -> Iterator[int]:
    """Those behind a time, ascending. Raises CronSimError, ValueError."""
    from cronsim import CronSim

    place = zone_named(zone)
    last_ms = after_ms
    # Whole seconds: cronsim leaves off what is less, and begins behind what is left.
    for found in CronSim(cron, datetime.fromtimestamp(after_ms // 1_000, place)):
        found_ms = int(found.timestamp()) * 1_000
        if found_ms > last_ms:  # a clock that is put forward may make two times one
            yield found_ms
            last_ms = found_ms


@lru_cache(1_024)
def next_after(cron: str, zone: str, after_ms: int) -> int | None:
    """The first time behind this one; None where there is none within the years that are looked at (50)."""
    return next(_times(cron, zone, after_ms), None)


def next_times(cron: str, zone: str, after_ms: int, count: int) -> list[int]:
    found: list[int] = []
    for at_ms in _times(cron, zone, after_ms) if count else ():
        found.append(at_ms)
        if len(found) == count:
            break
    return found


def _between(cron: str, zone: str, after_ms: int, upto_ms: int, most: int) -> list[int]:
    """Times in (after, upto], the first ones where there are more than `most`."""
    found: list[int] = []
    if after_ms >= upto_ms:
        return found
    for at_ms in _times(cron, zone, after_ms):
        if at_ms > upto_ms or len(found) == most:
            break
        found.append(at_ms)
    return found


class Due(Struct, frozen=True):
    """What is to be done now."""

    send_ms: int | None
    """The time for which a message is sent now. Others may follow."""
    missed: int
    """Times before it, or without it, for which none is sent; see MOST_COUNTED."""
    upto_ms: int
    """The newest of the times that are decided so."""


def due(cron: str, zone: str, after_ms: int, now_ms: int, *, late_ms: int, once: bool) -> Due:
    """What is due in (after, now]. A time is missed if it is more than `late_ms` ago; each of the others is kept,
    however late. Of those that were missed none is, unless `once`, and nothing else is due: then the newest is."""
    bound_ms = max(after_ms, now_ms - late_ms - 1)
    in_time = _between(cron, zone, bound_ms, now_ms, 1)
    missed = len(_between(cron, zone, after_ms, bound_ms, MOST_COUNTED))
    if in_time:
        return Due(in_time[0], missed, in_time[0])
    if not missed:
        return Due(None, 0, now_ms)
    newest_ms = _newest(cron, zone, after_ms, bound_ms, late_ms)
    return Due(newest_ms, missed - 1, newest_ms) if once else Due(None, missed, newest_ms)


def _newest(cron: str, zone: str, after_ms: int, upto_ms: int, span_ms: int) -> int:
    """The newest time in (after, upto], where there is one. Looked for further and further back: few stand between."""
    span_ms = max(span_ms, SHORTEST_MS)
    while True:
        begin_ms = max(after_ms, upto_ms - span_ms)
        newest_ms = -1
        for at_ms in _times(cron, zone, begin_ms):
            if at_ms > upto_ms:
                break
            newest_ms = at_ms
        if newest_ms >= 0:
            return newest_ms
        assert begin_ms > after_ms, "there is one"
        span_ms *= WIDER
