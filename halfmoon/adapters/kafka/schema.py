"""Decode a request by its schema, trusting nothing in its bytes.

kafka-python's own decoders are made for a client that trusts its broker: a varint of a million bytes makes them count
for hours, each tagged field copies the rest of the message, a null where none may be becomes a None that a handler
trips over, and a string cut short goes unnoticed. So their schemas and classes are used, and the bytes are read here.

A decoder is a tree of closures, made once per API and version. Lengths are checked against the bytes that are there,
so that memory grows with the size of the request and not with what it says.
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Callable
from typing import Any

from halfmoon.adapters.kafka import wire
from halfmoon.adapters.kafka.errors import MalformedRequest

Decode = Callable[[memoryview, int], tuple[Any, int]]

_FIXED = {
    "int8": "b",
    "int16": "h",
    "uint16": "H",
    "int32": "i",
    "int64": "q",
    "float64": "d",
    "bool": "?",
}


class Elements:
    """Counts the array elements of one request, for one that is large enough to have too many."""

    def __init__(self) -> None:
        self._left = wire.MAX_ELEMENTS

    def __call__(self, size: int) -> None:
        """An array of `size` elements begins. Raises MalformedRequest when they become too many."""
        self._left -= size
        if self._left < 0:
            raise wire.too_many_elements()


Count = Callable[[int], None]


def message_decoder(message: Any, version: int, count: Count | None = None) -> Decode:
    """The decoder of one version of a message class of kafka-python.

    `count` is told the size of every array before its elements are read. A request of fewer bytes than
    `wire.MAX_ELEMENTS` cannot have more elements; for those decoders are made without it, once.
    """
    return _struct_decoder(message._struct, version, bool(message.flexible_version_q(version)), message, count)


def _struct_decoder(schema: Any, version: int, flexible: bool, data_class: Any, count: Count | None) -> Decode:
    fields = [
        (field.name, _field_decoder(field, version, flexible, count)) for field in schema.untagged_fields(version)
    ]
    tagged = {
        field.tag: (field.name, _field_decoder(field, version, flexible, count))
        for field in schema._fields
        if field.for_version_q(version) and field.tagged_field_q(version)
    }
    new = object.__new__

    def decode(data: memoryview, pos: int) -> tuple[Any, int]:
        found = new(data_class)
        found._version = version
        found.tags = None
        found.unknown_tags = None
        for name, field in fields:
            value, pos = field(data, pos)
            setattr(found, name, value)
        if flexible:
            if data[pos] == 0:
                return found, pos + 1
            pos = _decode_tags(data, pos, found, tagged)
        return found, pos

    return decode


def _decode_tags(data: memoryview, pos: int, found: Any, tagged: dict[int, tuple[str, Decode]]) -> int:
    """Read the tagged fields that the schema knows into `found`, and step over the others."""
    count, pos = wire.tag_count(data, pos)
    for _ in range(count):
        tag, pos = wire.uvarint(data, pos)
        size, pos = wire.uvarint(data, pos)
        content, pos = wire.take(data, pos, size)
        if tag in tagged:
            name, decode = tagged[tag]
            value, end = decode(content, 0)
            if end != size:
                raise MalformedRequest(f"tagged field {name} says {size} bytes and has {end}")
            setattr(found, name, value)
    return pos


def _field_decoder(field: Any, version: int, flexible: bool, count: Count | None) -> Decode:
    nullable = bool(field.nullable_for_version_q(version))
    if field.is_struct_array():
        element = _struct_decoder(field.array_of, version, flexible, field.data_class, count)
        return _array_decoder(field.name, element, flexible, nullable, count)
    if field.is_array():
        element = _simple_decoder(field.array_of, flexible, False)
        return _array_decoder(field.name, element, flexible, nullable, count)
    if field.is_struct():
        inner = _struct_decoder(field, version, flexible, field.data_class, count)
        return _nullable_struct_decoder(inner) if nullable else inner
    return _simple_decoder(field, flexible, nullable)


def _array_decoder(name: str, element: Decode, compact: bool, nullable: bool, count: Count | None) -> Decode:
    def decode(data: memoryview, pos: int) -> tuple[list[Any] | None, int]:
        size, pos = wire.array_size(data, pos, compact)
        if size < 0:
            if nullable and size == -1:
                return None, pos
            raise MalformedRequest(f"array {name} has size {size}")
        if count is not None:
            count(size)
        items = []
        for _ in range(size):
            item, pos = element(data, pos)
            items.append(item)
        return items, pos

    return decode


def _nullable_struct_decoder(inner: Decode) -> Decode:
    """A byte says whether the struct is there: -1 is null (KIP-893)."""

    def decode(data: memoryview, pos: int) -> tuple[Any, int]:
        return (None, pos + 1) if data[pos] >= 0x80 else inner(data, pos + 1)

    return decode


def _simple_decoder(field: Any, compact: bool, nullable: bool) -> Decode:
    kind = field.type_str.removeprefix("[]")
    if kind in _FIXED:
        return _fixed_decoder(struct.Struct(">" + _FIXED[kind]))
    if kind == "string":
        read = wire.nullable_string if nullable else wire.string
        return lambda data, pos: read(data, pos, compact)
    if kind == "uuid":
        return _uuid
    assert kind in ("bytes", "records"), f"no decoder for {kind}"
    return _bytes_decoder(compact, nullable)


def _fixed_decoder(fixed: struct.Struct) -> Decode:
    size = fixed.size

    def decode(data: memoryview, pos: int) -> tuple[Any, int]:
        return fixed.unpack_from(data, pos)[0], pos + size

    return decode


def _uuid(data: memoryview, pos: int) -> tuple[uuid.UUID | None, int]:
    """As kafka-python has it: all zeroes are None."""
    raw, pos = wire.take(data, pos, wire.UUID_SIZE)
    found = uuid.UUID(bytes=bytes(raw))
    return (found if found.int else None), pos


def _bytes_decoder(compact: bool, nullable: bool) -> Decode:
    def decode(data: memoryview, pos: int) -> tuple[bytes | None, int]:
        size, pos = wire.bytes_size(data, pos, compact)
        if size == -1 and nullable:
            return None, pos
        raw, pos = wire.take(data, pos, size)
        return bytes(raw), pos

    return decode
