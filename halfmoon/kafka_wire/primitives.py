"""Kafka's primitive types, read from a memoryview and written as bytes, by hand.

Readers take `(data, pos)` and return `(value, pos)`. They never read outside `data`, and never take memory for a length
before the bytes are there. What is wrong with the bytes is a MalformedRequest, with two exceptions for speed: reading a
fixed-size field beyond the end raises `struct.error` or `IndexError`. Whoever calls these functions turns both into
MalformedRequest, once, at the top: `except TRUNCATED`.

Types: https://kafka.apache.org/protocol#protocol_types; compact forms and tagged fields: KIP-482.
"""

from __future__ import annotations

import struct
from typing import Final

from halfmoon.kafka_wire.errors import MalformedRequest

TRUNCATED: Final = (struct.error, IndexError)
"""What reading a fixed-size field beyond the end raises."""

INT16: Final = struct.Struct(">h")
INT32: Final = struct.Struct(">i")
INT64: Final = struct.Struct(">q")

FIXED: Final = {
    "int8": "b", "int16": "h", "uint16": "H", "int32": "i", "int64": "q", "float64": "d", "bool": "?",
}  # fmt: skip
"""Types of fixed size, as `struct` names them."""

UUID_SIZE: Final = 16

MAX_ELEMENTS: Final = 50_000
"""Array elements of one request. An element of one byte becomes objects of hundreds, and an answer as large: what
4 MiB can hold would stop everybody else for half a minute. Clients name a partition once, and ask for thousands."""

MAX_TAGS: Final = 64
"""Tagged fields in one place. The protocol defines a handful; unknown ones are stepped over one by one."""


def uvarint(data: memoryview, pos: int) -> tuple[int, int]:
    """An unsigned varint of at most 32 bits: seven bits a byte, least significant first."""
    byte: int = data[pos]
    if byte < 0x80:
        return byte, pos + 1
    value = byte & 0x7F
    for shift in (7, 14, 21, 28):
        pos += 1
        byte = data[pos]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value > 0xFFFFFFFF:
                break
            return value, pos + 1
    raise MalformedRequest("a varint is longer than 32 bits")


def take(data: memoryview, pos: int, size: int) -> tuple[memoryview, int]:
    """The next `size` bytes, uncopied."""
    end = pos + size
    if size < 0 or end > len(data):
        raise MalformedRequest(f"a field of {size} bytes in a request that has {max(len(data) - pos, 0)} left")
    return data[pos:end], end


def text(data: memoryview, pos: int, size: int) -> tuple[str, int]:
    """A string of `size` bytes; `size` < 0 is null, which is refused here."""
    if size < 0:
        raise MalformedRequest("a string that may not be null is null")
    raw, pos = take(data, pos, size)
    try:
        return str(raw, "utf-8"), pos
    except UnicodeDecodeError:
        raise MalformedRequest("a string is not UTF-8") from None


def string_size(data: memoryview, pos: int, compact: bool) -> tuple[int, int]:
    """The length of the string that follows, -1 for null."""
    if compact:
        size, pos = uvarint(data, pos)
        return size - 1, pos
    (length,) = INT16.unpack_from(data, pos)
    return length, pos + 2


def string(data: memoryview, pos: int, compact: bool) -> tuple[str, int]:
    size, pos = string_size(data, pos, compact)
    return text(data, pos, size)


def nullable_string(data: memoryview, pos: int, compact: bool) -> tuple[str | None, int]:
    size, pos = string_size(data, pos, compact)
    if size < 0:
        return None, pos
    return text(data, pos, size)


def bytes_size(data: memoryview, pos: int, compact: bool) -> tuple[int, int]:
    """The length of the bytes that follow, -1 for null."""
    if compact:
        size, pos = uvarint(data, pos)
        return size - 1, pos
    (length,) = INT32.unpack_from(data, pos)
    return length, pos + 4


def array_size(data: memoryview, pos: int, compact: bool) -> tuple[int, int]:
    """The number of elements that follow, -1 for null.

    An element takes at least a byte, so a number that the rest of the request cannot hold is refused at once.
    """
    size, pos = bytes_size(data, pos, compact)
    if size > len(data) - pos:
        raise MalformedRequest(f"an array of {size} elements in a request that has {len(data) - pos} bytes left")
    return size, pos


def too_many_elements() -> MalformedRequest:
    return MalformedRequest(f"more than {MAX_ELEMENTS} array elements in one request")


def tag_count(data: memoryview, pos: int) -> tuple[int, int]:
    """How many tagged fields follow."""
    count, pos = uvarint(data, pos)
    if count > MAX_TAGS:
        raise MalformedRequest(f"{count} tagged fields, {MAX_TAGS} are allowed")
    return count, pos


def skip_tags(data: memoryview, pos: int) -> int:
    """Step over tagged fields. Unknown ones are legal and mean nothing to us."""
    count, pos = tag_count(data, pos)
    for _ in range(count):
        _, pos = uvarint(data, pos)
        size, pos = uvarint(data, pos)
        _, pos = take(data, pos, size)
    return pos


def encode_uvarint(value: int) -> bytes:
    if value < 0x80:
        return bytes((value,))
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def encode_string(value: str | None, compact: bool) -> bytes:
    """A string, or null. Raises `struct.error` for one of more than 32,767 bytes outside compact form."""
    if value is None:
        return b"\x00" if compact else b"\xff\xff"
    raw = value.encode()
    return (encode_uvarint(len(raw) + 1) if compact else INT16.pack(len(raw))) + raw


def encode_array_size(size: int, compact: bool) -> bytes:
    return encode_uvarint(size + 1) if compact else INT32.pack(size)
