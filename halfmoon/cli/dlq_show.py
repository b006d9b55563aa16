"""How dead letters are shown: a line each, each whole, or as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from halfmoon.cli import output
from halfmoon.cli.dlq_selection import error_classes, place_of
from halfmoon.cli.dlq_state import Mark
from halfmoon.cli.formats import as_json, as_text, in_short
from halfmoon.cli.times import format_time
from halfmoon.error_classes import CLASS_HEADER, MESSAGE_HEADER

COLUMNS = ("offset", "topic", "times", "reason", "replayed", "key", "value")
TOPIC, ORIGIN, TIMES, REASON = "RETRY_TOPIC", "ORIGIN_MESSAGE_ID", "RECONSUME_TIME", "halfmoon.reason"
TOLD = (TOPIC, ORIGIN, TIMES, REASON, CLASS_HEADER, MESSAGE_HEADER)
"""Headers that are shown by other names."""


class Shown(NamedTuple):
    """A dead letter, and what has become of it. `replayed`: None where nobody knows."""

    record: Any
    replayed: bool | None
    mark: Mark | None


def print_table(found: Sequence[Shown]) -> None:
    """With the columns that are needed to tell one from the other."""
    columns = list(COLUMNS)
    if any(each.mark for each in found):
        columns.insert(columns.index("replayed") + 1, "handled")
    if len({each.record[:2] for each in found}) > 1:
        columns.insert(0, "partition")
    if any(error_classes(each.record) for each in found):
        columns.insert(columns.index("reason") + 1, "error")
    output.table([_row(each) for each in found], columns)


def _row(shown: Shown) -> dict[str, Any]:
    record, headers = shown.record, dict(shown.record.headers)
    return {
        "offset": record.offset,
        "partition": record.partition,
        "topic": in_short(headers.get(TOPIC)),
        "times": in_short(headers.get(TIMES)),
        "reason": in_short(headers.get(REASON)),
        "error": in_short(headers.get(MESSAGE_HEADER)),
        "replayed": shown.replayed,
        "handled": shown.mark is not None,
        "key": in_short(record.key),
        "value": in_short(record.value),
    }


def print_whole(found: Sequence[Shown]) -> None:
    """All that is known of each."""
    for number, each in enumerate(found):
        if number:
            output.line("")
        _print(each)


def _print(shown: Shown) -> None:
    record, headers = shown.record, dict(shown.record.headers)
    facts = {
        "dead letter": "/".join(map(str, place_of(record))),
        "timestamp": format_time(record.timestamp) if record.timestamp >= 0 else None,
        "topic": as_text(headers.get(TOPIC)),
        "origin": as_text(headers.get(ORIGIN)),
        "attempts": as_text(headers.get(TIMES)),
        "cause": as_text(headers.get(REASON)),
        "error": next(iter(error_classes(record)), None),
        "message": as_text(headers.get(MESSAGE_HEADER)),
        "replayed": shown.replayed,
        "handled": _handled(shown.mark),
        "key": as_text(record.key),
    }
    output.facts(facts)
    others = [{"header": name, "value": as_text(content)} for name, content in record.headers if name not in TOLD]
    if others:
        output.line("")
        output.table(others, ("header", "value"))
    output.line("")
    output.line("-" if record.value is None else record.value.decode("utf-8", "backslashreplace"))


def _handled(mark: Mark | None) -> str | bool:
    if mark is None:
        return False
    when = format_time(mark.at_ms)
    return f"{when}: {mark.note}" if mark.note else when


def as_document(shown: Shown) -> dict[str, Any]:
    """The record as `consume -o json` writes it, and what has become of it."""
    record, headers, mark = shown.record, dict(shown.record.headers), shown.mark
    return {
        **as_json(record),
        "replayed": shown.replayed,
        "handled": None if mark is None else {"at": format_time(mark.at_ms), "note": mark.note},
        "original_topic": as_text(headers.get(TOPIC)),
        "origin": as_text(headers.get(ORIGIN)),
        "attempts": as_text(headers.get(TIMES)),
        "cause": as_text(headers.get(REASON)),
        "error_classes": error_classes(record),
        "error_message": as_text(headers.get(MESSAGE_HEADER)),
    }
