"""Read messages by their definitions, trusting nothing in their bytes.

A varint of a million bytes, a null where none may be, a string cut short, an array longer than the message: each is a
MalformedRequest. Lengths are checked against the bytes that are there, so that memory grows with the size of the
message and not with what it says.

A decoder is a tree of closures, made once per message and version.
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Callable
from typing import Any

from halfmoon.kafka_wire import primitives as wire
from halfmoon.kafka_wire.definition import Field, Fields
from halfmoon.kafka_wire.errors import MalformedRequest
from halfmoon.kafka_wire.primitives import FIXED

Decode = Callable[[memoryview, int], tuple[Any, int]]


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


def message_decoder(fields: Fields, version: int, flexible: bool, count: Count | None = None) -> Decode:
    """The decoder of one version of a message.

    `count` is told the size of every array before its elements are read. A request of fewer bytes than
    `MAX_ELEMENTS` cannot have more elements; for those decoders are made without it, once.
    """
    return _struct_decoder(fields, version, flexible, count)


def _struct_decoder(definition: Fields, version: int, flexible: bool, count: Count | None) -> Decode:
    fields = [(field.name, field_decoder(field, version, flexible, count)) for field in definition.plain(version)]
    tagged = tagged_decoders(definition, version, flexible, count)
    new, kind = object.__new__, definition.type

    def decode(data: memoryview, pos: int) -> tuple[Any, int]:
        found = new(kind)
        for name, field in fields:
            value, pos = field(data, pos)
            setattr(found, name, value)
        if flexible:
            if data[pos] == 0:
                return found, pos + 1
            pos = decode_tags(data, pos, found, tagged)
        return found, pos

    return decode


def tagged_decoders(
    definition: Fields, version: int, flexible: bool, count: Count | None
) -> dict[int, tuple[str, Decode]]:
    """Of the fields that may be among the tagged ones, by tag."""
    return {
        tag: (field.name, field_decoder(field, version, flexible, count))
        for tag, field in definition.tagged(version).items()
    }


def decode_tags(data: memoryview, pos: int, found: Any, tagged: dict[int, tuple[str, Decode]]) -> int:
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


def field_decoder(field: Field, version: int, flexible: bool, count: Count | None) -> Decode:
    nullable = field.is_nullable(version)
    if field.is_array and field.kind in FIXED:
        return _numbers_decoder(field.name, FIXED[field.kind], flexible, nullable, count)
    element = element_decoder(field, version, flexible, count)
    if field.is_array:
        return _array_decoder(field.name, element, flexible, nullable, count)
    return _nullable_struct_decoder(element) if field.struct is not None and nullable else element


def element_decoder(field: Field, version: int, flexible: bool, count: Count | None) -> Decode:
    """Of a field, or of an element where it is an array."""
    if field.struct is None:
        return _simple_decoder(field.kind, flexible, field.is_nullable(version) and not field.is_array)
    return _struct_decoder(field.struct, version, flexible, count)


def _size_decoder(
    name: str, compact: bool, nullable: bool, count: Count | None
) -> Callable[[memoryview, int], tuple[int, int]]:
    """How many elements an array has, which are counted; -1: it is null."""

    def decode(data: memoryview, pos: int) -> tuple[int, int]:
        size, pos = wire.array_size(data, pos, compact)
        if size < 0:
            if size != -1 or not nullable:
                raise MalformedRequest(f"array {name} has size {size}")
        elif count is not None:
            count(size)
        return size, pos

    return decode


def _numbers_decoder(name: str, layout: str, compact: bool, nullable: bool, count: Count | None) -> Decode:
    """An array of numbers, read by one `unpack`."""
    size_of = _size_decoder(name, compact, nullable, count)
    item_size = struct.calcsize(f">{layout}")

    def decode(data: memoryview, pos: int) -> tuple[list[Any] | None, int]:
        size, pos = size_of(data, pos)
        if size < 0:
            return None, pos
        return list(struct.unpack_from(f">{size}{layout}", data, pos)), pos + size * item_size

    return decode


def _array_decoder(name: str, element: Decode, compact: bool, nullable: bool, count: Count | None) -> Decode:
    size_of = _size_decoder(name, compact, nullable, count)

    def decode(data: memoryview, pos: int) -> tuple[list[Any] | None, int]:
        size, pos = size_of(data, pos)
        if size < 0:
            return None, pos
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


def _simple_decoder(kind: str, compact: bool, nullable: bool) -> Decode:
    if kind in FIXED:
        return _fixed_decoder(struct.Struct(">" + FIXED[kind]))
    if kind == "string":
        read = wire.nullable_string if nullable else wire.string
        return lambda data, pos: read(data, pos, compact)
    if kind == "uuid":
        return _uuid
    if kind == "bitfield":
        return _bits
    assert kind in ("bytes", "records"), f"no decoder for {kind}"
    return _bytes_decoder(compact, nullable)


def _fixed_decoder(fixed: struct.Struct) -> Decode:
    size = fixed.size

    def decode(data: memoryview, pos: int) -> tuple[Any, int]:
        return fixed.unpack_from(data, pos)[0], pos + size

    return decode


def _uuid(data: memoryview, pos: int) -> tuple[uuid.UUID | None, int]:
    """All zeroes are None."""
    raw, pos = wire.take(data, pos, wire.UUID_SIZE)
    found = uuid.UUID(bytes=bytes(raw))
    return (found if found.int else None), pos


def _bits(data: memoryview, pos: int) -> tuple[frozenset[int] | None, int]:
    """The highest bit alone is None: nobody has asked."""
    (value,) = wire.INT32.unpack_from(data, pos)
    bits = frozenset(bit for bit in range(32) if value >> bit & 1)
    return (None if bits == {31} else bits), pos + 4


def _bytes_decoder(compact: bool, nullable: bool) -> Decode:
    def decode(data: memoryview, pos: int) -> tuple[bytes | None, int]:
        size, pos = wire.bytes_size(data, pos, compact)
        if size == -1 and nullable:
            return None, pos
        raw, pos = wire.take(data, pos, size)
        return bytes(raw), pos

    return decode
