"""The keys that a record can be found by (B05): headers with RocketMQ's property names, and the record's own key where
a topic says so.

    KEYS      any number of keys, separated by blanks (org.apache.rocketmq.common.message.MessageConst)
    UNIQ_KEY  one, which its producer gives to one message alone
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import stringzilla

from halfmoon.core.records.record_codec import Record
from halfmoon.services.common.header_search import HeaderSearch

KEYS: Final = "KEYS"
UNIQ_KEY: Final = "UNIQ_KEY"
NAMES: Final[tuple[str, str]] = (KEYS, UNIQ_KEY)

MAX_CONTENT_BYTES = 64 << 10
"""Nobody finds a record by a header that is longer, or by a key that is."""

_UNIQ_KEY: Final = UNIQ_KEY.encode()
_AT_ONCE: Final = 500
_find: Final = stringzilla.find

finds_keys = HeaderSearch(NAMES).finds
"""finds_keys(body): whether a record in these bytes (decompressed) may have one of the headers."""


class OverlappingError(Exception):
    """More bytes look like keys than there are: somebody has made it so."""


def unique_key(record: Record) -> bytes | None:
    """The last header UNIQ_KEY, as clients take it."""
    return next((content for name, content in reversed(record.headers) if name == UNIQ_KEY), None)


def possible_unique_keys(body: bytes) -> Iterator[tuple[int, bytes]]:
    """All UNIQ_KEYs in the headers of a decompressed body's records, and where in it they stand: as
    `lists_of_values`."""
    for places, contents in lists_of_values(body, _UNIQ_KEY, _AT_ONCE):
        yield from zip(places, contents, strict=True)


def lists_of_values(body: bytes, name: bytes, most: int) -> Iterator[tuple[list[int], list[bytes]]]:
    """The contents of the headers of this name in a decompressed body's records, and where in it they are; and perhaps
    bytes that look like some, or nothing at all: records are not read, which takes three times as long. In lists of up
    to so many.

    Raises OverlappingError where what looks like contents is more than could be there: then read the records.
    """
    at = _find(body, name)
    left = len(body)
    while at >= 0:
        places: list[int] = []
        contents: list[bytes] = []
        at, left = _values(body, name, at, left, most, places, contents)
        yield places, contents


def _values(
    body: bytes, name: bytes, at: int, left: int, most: int, places: list[int], contents: list[bytes]
) -> tuple[int, int]:
    """Fill the lists from the name at `at` on. Where the next name is (−1: nowhere), and how much contents may take."""
    end = len(body)
    while at >= 0 and len(contents) < most:
        at += len(name)
        length = body[at] if at < end else 1
        if length < 0x80:  # one byte, as most are: worth not calling for
            content = b"" if length & 1 else body[at + 1 : at + 1 + (length >> 1)]
        else:
            content = _value_at(body, at)
        left -= len(content)
        if left < 0:
            raise OverlappingError
        places.append(at)
        contents.append(content)
        at = _find(body, name, at)
    return at, left


def _value_at(body: bytes, at: int) -> bytes:
    """What a header's value would be that began here with its length: a varint, zigzag (record_codec.py)."""
    length = shift = 0
    encoded = body[at : at + 5]
    for byte in encoded:
        at += 1
        length |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return b"" if length & 1 or length > 2 * MAX_CONTENT_BYTES else body[at : at + (length >> 1)]
    return b""
