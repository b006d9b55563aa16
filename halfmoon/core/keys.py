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

_KEYS, _UNIQ_KEY = (name.encode() for name in NAMES)
_find = stringzilla.find

finds_keys = HeaderSearch(NAMES).finds
"""finds_keys(body): whether a record in these bytes (decompressed) may have one of the headers."""


def keys_of(record: Record, *, own_key: bool) -> set[bytes]:
    """What a record can be found by; its own key is among that with `own_key`."""
    found: set[bytes] = set()
    for name, content in record.headers:
        if content is not None and name == KEYS:
            found.update(content.split(SEPARATOR))
        elif content is not None and name == UNIQ_KEY:
            found.add(content)
    if own_key and record.key is not None:
        found.add(record.key)
    found.discard(b"")
    return found


def unique_key(record: Record) -> bytes | None:
    """The last header UNIQ_KEY, as clients take it."""
    return next((content for name, content in reversed(record.headers) if name == UNIQ_KEY), None)


def possible_keys(body: bytes) -> Iterator[bytes]:
    """All keys in the headers of a decompressed body's records, and perhaps bytes that look like some: records are not
    read, which takes five times as long."""
    for _, content in _values(body, _KEYS):
        yield from (key for key in content.split(SEPARATOR) if key)
    for _, content in _values(body, _UNIQ_KEY):
        yield content


def possible_unique_keys(body: bytes) -> Iterator[tuple[int, bytes]]:
    """All UNIQ_KEYs so, and where in the body they stand."""
    return _values(body, _UNIQ_KEY)


def _values(body: bytes, name: bytes) -> Iterator[tuple[int, bytes]]:
    at = _find(body, name)
    while at >= 0:
        at += len(name)
        content = _value_at(body, at)
        if content:
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
            return b"" if length & 1 else body[at : at + (length >> 1)]
    return b""
