"""All keys of a record, and all that a batch may have (services/common/keys.py)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from halfmoon.core.records.record_codec import Record
from halfmoon.services.common.keys import KEYS, MAX_CONTENT_BYTES, UNIQ_KEY, lists_of_values

SEPARATOR: Final = b" "
"""Of the keys in KEYS (MessageConst.KEY_SEPARATOR)."""

_KEYS: Final = KEYS.encode()
_UNIQ_KEY: Final = UNIQ_KEY.encode()


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


def possible_keys(body: bytes, most: int) -> Iterator[list[bytes]]:
    """All keys in the headers of a decompressed body's records, and perhaps bytes that look like some, or nothing at
    all: records are not read, which takes three times as long. In lists of about so many.

    Raises OverlappingError where what looks like keys is more than could be there: then read the records.
    """
    keys: list[bytes] = []
    for _, contents in lists_of_values(body, _KEYS, most):
        for content in contents:
            keys += content.split(SEPARATOR)
            if len(keys) >= most:
                yield keys
                keys = []
    if keys:
        yield keys
    for _, contents in lists_of_values(body, _UNIQ_KEY, most):
        yield contents
