"""Bytes that stand in every record with a certain header, so that most others need not be read.

A header is `name length, name, value length, value` (see core/records/record_codec.py), the lengths being varints of
one to five bytes. Usually it is one, twice the value's length; but a varint may be written longer than it has to be.
The bytes may also stand in a record by chance, so they prove nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

Header = tuple[str, bytes | None]
"""A header that a record needs: with this value, or with any if it is None."""


def needle(alternatives: Iterable[Header]) -> re.Pattern[bytes]:
    """A pattern that occurs in every record which has one of these headers."""
    values: dict[str, set[bytes] | None] = {}
    for name, value in alternatives:
        known = values.setdefault(name, set())
        if value is None:
            values[name] = None
        elif known is not None:
            known.add(value)
    return re.compile(b"|".join(_of_one(name, wanted) for name, wanted in sorted(values.items())), re.DOTALL)


def _of_one(name: str, values: set[bytes] | None) -> bytes:
    literal = re.escape(name.encode())
    if values is None:
        return literal
    escaped = {value: re.escape(value) for value in sorted(values)}
    short = [re.escape(bytes([2 * len(value)])) + text for value, text in escaped.items() if len(value) < 64]
    longer = rb"[\x80-\xff]{1,4}[\x00-\x7f](?:" + b"|".join(escaped.values()) + b")"
    return literal + b"(?:" + b"|".join([*short, longer]) + b")"
