"""The keys that a record can be found by (B05): headers with RocketMQ's property names, and the record's own key where
a topic says so.

    KEYS      any number of keys, separated by blanks (org.apache.rocketmq.common.message.MessageConst)
    UNIQ_KEY  one, which its producer gives to one message alone
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import stringzilla

from halfmoon.core.header_search import HeaderSearch

if TYPE_CHECKING:
    from halfmoon.core.record_codec import Record

KEYS, UNIQ_KEY = NAMES = ("KEYS", "UNIQ_KEY")
SEPARATOR = b" "
"""Of the keys in KEYS (MessageConst.KEY_SEPARATOR)."""

MAX_CONTENT_BYTES = 64 << 10
"""Nobody finds a record by a header that is longer, or by a key that is."""

_KEYS, _UNIQ_KEY = (name.encode() for name in NAMES)
_find = stringzilla.find

finds_keys = HeaderSearch(NAMES).finds
"""finds_keys(body): whether a record in these bytes (decompressed) may have one of the headers."""


class OverlappingError(Exception):
    """More bytes look like keys than there are: somebody has made it so."""


def keys_of(record: Record, *, own_key: bool, headers: bool = True) -> set[bytes]:
    """What a record can be found by; its own key is among that with `own_key`, its headers with `headers`."""
    found: set[bytes] = set()
    for name, content in record.headers if headers else ():
        if content is None or len(content) > MAX_CONTENT_BYTES:
            continue
        if name == KEYS:
            found.update(content.split(SEPARATOR))
        elif name == UNIQ_KEY:
            found.add(content)
    if own_key and record.key is not None and len(record.key) <= MAX_CONTENT_BYTES:
        found.add(record.key)
    found.discard(b"")
    return found


def unique_key(record: Record) -> bytes | None:
    """The last header UNIQ_KEY, as clients take it."""
    return next((content for name, content in reversed(record.headers) if name == UNIQ_KEY), None)


def possible_keys(body: bytes) -> Iterator[bytes]:
    """All keys in the headers of a decompressed body's records, and perhaps bytes that look like some, or nothing at
    all: records are not read, which takes three times as long.

    Raises OverlappingError where what looks like keys is more than could be there: then read the records.
    """
    for _, content in _values(body, _KEYS):
        yield from content.split(SEPARATOR)
    for _, content in _values(body, _UNIQ_KEY):
        yield content


def possible_unique_keys(body: bytes) -> Iterator[tuple[int, bytes]]:
    """All UNIQ_KEYs so, and where in the body they stand."""
    return _values(body, _UNIQ_KEY)


def _values(body: bytes, name: bytes) -> Iterator[tuple[int, bytes]]:
    at = _find(body, name)
    left = end = len(body)
    while at >= 0:
        at += len(name)
        length = body[at] if at < end else 1
        if length < 0x80:  # one byte, as most are: worth not calling for
            content = b"" if length & 1 else body[at + 1 : at + 1 + (length >> 1)]
        else:
            content = _value_at(body, at)
        left -= len(content)
        if left < 0:
            raise OverlappingError
        yield at, content
        at = _find(body, name, at)


def _value_at(body: bytes, at: int) -> bytes:
    """What a header's value would be that began here with its length: a varint, zigzag (core/record_codec.py)."""
    length = shift = 0
    for byte in body[at : at + 5]:
        at += 1
        length |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return b"" if length & 1 or length > 2 * MAX_CONTENT_BYTES else body[at : at + (length >> 1)]
    return b""
