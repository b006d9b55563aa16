"""The keys of a batch's records, cut out of its body without reading the records."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator
from functools import lru_cache
from hashlib import blake2b
from itertools import chain
from struct import Struct
from typing import NamedTuple

from halfmoon.core.records import record_codec
from halfmoon.core.records.record_codec import MalformedError
from halfmoon.core.storage.files import Buffer

LONGEST_KEY = 32
"""Longer keys are remembered by a digest."""
_LONGEST_KEY_CODE = 2 * LONGEST_KEY
_DIGEST = b"digest of 16 byte"
assert len(_DIGEST) + 16 > LONGEST_KEY

_SHORTEST_STRETCH = 16
"""Records of one layout that are worth being taken together."""
_FIRST_LOOK = 64
"""So many records are compared at first; then some times as many as were alike the time before."""
_GOES_ON = bytes(byte >= 0x80 for byte in range(256))
_IS_NULL = bytes(byte == 1 for byte in range(256))


class Keys(NamedTuple):
    """Of a batch's records, in their order: the keys, None where there is none; which have no value (1); and where they
    begin in the body."""

    keys: list[bytes | None]
    without_value: bytearray
    starts: array[int]


def read_keys(body: bytes, count: int) -> Keys:
    """Raises BrokerError(INVALID_RECORD) where the records are malformed as far as they are looked at.

    It runs for each record that is compacted, so calls are avoided for what is common; and what machines write is often
    of one layout for long stretches, whose keys are cut out together.
    """
    record_codec.checked_count(body, count)
    keys: list[bytes | None] = []
    starts = array("I")
    append, begins = keys.append, starts.append
    without_value = bytearray(count)
    size = len(body)
    at = index = stride = 0
    plain_upto = 0
    """Up to this record no stretch is looked for, the longer the more often it was in vain."""
    most = _FIRST_LOOK
    rest = _SHORTEST_STRETCH
    try:
        while index < count:
            start = at
            begins(at)
            length = body[at]
            if length < 0x80:
                end = at + 1 + (length >> 1)
                at += 2  # the length and the attributes
            elif body[at + 1] < 0x80:
                length = (length & 0x7F) | body[at + 1] << 7
                end = at + 2 + (length >> 1)
                at += 3
            else:
                length, at = record_codec.varint(body, at)
                end = at + length
                length <<= 1
                at += 1
            if length & 1 or length < 12 or end > size:
                raise MalformedError("its length is impossible")
            times = at
            while body[at] >= 0x80:  # the time
                at += 1
            at += 1
            while body[at] >= 0x80:  # the offset
                at += 1
            at += 1
            length = body[at]
            if length <= _LONGEST_KEY_CODE and not length & 1:
                at += 1
                key_at, after = at, at + (length >> 1)
                append(body[at:after])
            else:
                length, at = record_codec.varint(body, at)
                if length < -1:
                    raise MalformedError("a length in it is negative")
                key_at, after = 0, at if length < 0 else at + length
                append(None if length < 0 else _short(body[at:after]))
            if after >= end:
                raise MalformedError("a length in it reaches beyond its end")
            if body[after] == 1:
                without_value[index] = 1
            at = end
            index += 1
            last_stride, stride = stride, end - start
            if key_at and stride == last_stride and index > plain_upto:
                alike = _alike(body, start, times, key_at, end, min(most, count - index))
                most = max(_FIRST_LOOK, 4 * alike)
                if alike < _SHORTEST_STRETCH:
                    rest *= 2
                    plain_upto = index + rest
                    continue
                rest = _SHORTEST_STRETCH
                upto = at + alike * stride
                cut = _cutter(key_at - start, after - key_at, end - after)
                keys += chain.from_iterable(cut(memoryview(body)[at:upto]))
                starts.extend(range(at, upto, stride))
                nulls = body[after + stride : upto : stride].translate(_IS_NULL)
                without_value[index : index + alike] = nulls
                at = upto
                index += alike
    except MalformedError as error:
        raise record_codec.invalid(len(starts) - 1, str(error)) from None
    except IndexError:
        raise record_codec.invalid(len(starts) - 1, "the batch ends within it") from None
    record_codec.check_end(body, count, at)
    return Keys(keys, without_value, starts)


def _alike(body: bytes, start: int, times: int, key_at: int, end: int, most: int) -> int:
    """How many records of the layout of body[start:end] follow it, `most` at most: of the same length, with numbers and
    a key of as many bytes. `times`: where its numbers begin. Each byte that says so is compared in all of them at once.
    """
    stride = end - start
    count = min(most, (len(body) - end) // stride)
    for at in (*range(start, times - 1), key_at - 1):
        column = body[at + stride : at + stride * count + 1 : stride]
        count = len(column) - len(column.lstrip(body[at : at + 1]))
    for at in range(times, key_at - 1):
        column = body[at + stride : at + stride * count + 1 : stride]
        goes_on = column.translate(_GOES_ON)
        count = len(goes_on) - len(goes_on.lstrip(b"\1" if body[at] >= 0x80 else b"\0"))
    return count


@lru_cache(1024)
def _cutter(before: int, length: int, after: int) -> Callable[[Buffer], Iterator[tuple[bytes]]]:
    """Takes so many bytes out of each piece."""
    return Struct(f"{before}x{length}s{after}x").iter_unpack


def _short(key: bytes) -> bytes:
    """What a key is remembered by."""
    return key if len(key) <= LONGEST_KEY else _DIGEST + blake2b(key, digest_size=16).digest()
