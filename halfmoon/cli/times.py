"""Points in time as people give them on a command line."""

from __future__ import annotations

import re
from datetime import UTC, datetime

UNIT_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_AGO = re.compile(r"-(\d{1,15}(?:\.\d{1,6})?)(ms|s|m|h|d|w)")

HELP = "2013-01-01T00:00 (UTC), ms since 1970, or -1h."
EXPECTED = "a time such as 2013-01-01T00:00, 1356998400000 (ms) or -1h"


def parse_time(text: str, now_ms: int) -> int:
    """A point in time in ms since 1970, UTC. Raises ValueError.

    Takes ISO 8601 (`2013-01-01`, `2013-01-01T00:00`, `…T00:00Z`, `…+02:00`; without a zone it is UTC, so that a command
    means the same on every machine), ms since 1970, or a time before now: `-90s`, `-1.5h`, `-7d`.
    """
    if text.isascii() and text.isdigit():
        return int(text)
    ago = _AGO.fullmatch(text)
    if ago:
        return now_ms - round(float(ago[1]) * UNIT_MS[ago[2]])
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"{text!r} is not {EXPECTED}") from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return round(moment.timestamp() * 1000)


def format_time(time_ms: int) -> str:
    """ISO 8601 in UTC with ms: what `parse_time` reads back."""
    return datetime.fromtimestamp(time_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
