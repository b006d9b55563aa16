"""Read and write large messages in slices: generators that yield None where others may have their turn.

A message of 50,000 elements takes 200 ms to read and as long to write. Here arrays are walked with a pause after every
`EVERY` elements, or after each one that has arrays itself; whoever carries it out decides after which pauses it goes on
at once. What has no arrays is read and written by the closures of `decoding` and `encoding`, and the bytes are the
same.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from operator import attrgetter
from typing import Any, TypeVar

from halfmoon.kafka_wire import primitives as wire
from halfmoon.kafka_wire.decoding import Count, decode_tags, element_decoder, field_decoder, tagged_decoders
from halfmoon.kafka_wire.definition import Field, Fields
from halfmoon.kafka_wire.encoding import Add, element_writer, field_writer, tags_writer
from halfmoon.kafka_wire.errors import MalformedRequest
from halfmoon.kafka_wire.primitives import FIXED
from halfmoon.kafka_wire.records import Record

MadeT = TypeVar("MadeT")
Slices = Generator[None, None, MadeT]

EVERY = 64
"""Elements from one pause to the next: some 0.2 ms."""
JOIN_PARTS = 8_192
"""So many parts of an answer are joined at a time: all of a large one would take 10 ms."""

EncodeSlices = Callable[[Any], Slices[list[bytes]]]
_DecodeSlices = Callable[[memoryview, int], Slices[tuple[Any, int]]]
_WriteSlices = Callable[[Any, Add], Slices[None]]


def message_decoder(fields: Fields, version: int, flexible: bool, count: Count) -> _DecodeSlices:
    """As `decoding.message_decoder`."""
    return _struct_decoder(fields, version, flexible, count)


def _has_arrays(fields: Fields, version: int) -> bool:
    return any(_is_long(field, version) for field in fields.plain(version))


def _is_long(field: Field, version: int) -> bool:
    """Whether it can take long: an array, but for one of numbers, or a struct with one."""
    if field.is_array:
        return field.kind not in FIXED
    return field.struct is not None and _has_arrays(field.struct, version)


def _struct_decoder(definition: Fields, version: int, flexible: bool, count: Count) -> _DecodeSlices:
    fields: list[tuple[str, Any, bool]] = []
    for field in definition.plain(version):
        if _is_long(field, version):
            fields.append((field.name, _long_decoder(field, version, flexible, count), True))
        else:
            fields.append((field.name, field_decoder(field, version, flexible, count), False))
    tagged = tagged_decoders(definition, version, flexible, count)
    new, kind = object.__new__, definition.type

    def decode(data: memoryview, pos: int) -> Slices[tuple[Any, int]]:
        found = new(kind)
        for name, read, is_long in fields:
            value, pos = (yield from read(data, pos)) if is_long else read(data, pos)
            setattr(found, name, value)
        if flexible:
            pos = pos + 1 if data[pos] == 0 else decode_tags(data, pos, found, tagged)
        return found, pos

    return decode


def _long_decoder(field: Field, version: int, flexible: bool, count: Count) -> _DecodeSlices:
    nullable = field.is_nullable(version)
    if not field.is_array:
        assert field.struct is not None
        inner = _struct_decoder(field.struct, version, flexible, count)

        def decode(data: memoryview, pos: int) -> Slices[tuple[Any, int]]:
            if not nullable:
                return (yield from inner(data, pos))
            return (None, pos + 1) if data[pos] >= 0x80 else (yield from inner(data, pos + 1))

        return decode
    nested = field.struct is not None and _has_arrays(field.struct, version)
    element: Any
    if nested:
        assert field.struct is not None
        element = _struct_decoder(field.struct, version, flexible, count)
    else:
        element = element_decoder(field, version, flexible, count)

    def decode_array(data: memoryview, pos: int) -> Slices[tuple[list[Any] | None, int]]:
        size, pos = wire.array_size(data, pos, flexible)
        if size < 0:
            if nullable and size == -1:
                return None, pos
            raise MalformedRequest(f"array {field.name} has size {size}")
        count(size)
        items = []
        for at in range(size):
            item, pos = (yield from element(data, pos)) if nested else element(data, pos)
            items.append(item)
            if nested or not at % EVERY:
                yield
        return items, pos

    return decode_array


def message_encoder(fields: Fields, version: int, flexible: bool) -> EncodeSlices:
    """As `encoding.message_encoder`; the bytes come in pieces."""
    write = _struct_writer(fields, version, flexible)

    def encode(message: Any) -> Slices[list[bytes]]:
        joined: list[bytes] = []
        parts: list[bytes] = []
        for _ in write(message, parts.append):
            if len(parts) >= JOIN_PARTS:
                joined.append(b"".join(parts))
                parts.clear()
            yield
        joined.append(b"".join(parts))
        return joined

    return encode


def _struct_writer(definition: Fields, version: int, flexible: bool) -> _WriteSlices:
    steps: list[tuple[Callable[[Any], Any], Any, bool]] = []
    for field in definition.plain(version):
        get = attrgetter(field.name)
        if _is_long(field, version):
            steps.append((get, _long_writer(field, version, flexible), True))
        else:
            steps.append((get, field_writer(field, version, flexible), False))
    tags = tags_writer(definition, version) if flexible else None

    def write(record: Any, add: Add) -> Slices[None]:
        for get, put, is_long in steps:
            if is_long:
                yield from put(get(record), add)
            else:
                put(get(record), add)
        if tags is not None:
            tags(record, add)

    return write


def _long_writer(field: Field, version: int, flexible: bool) -> _WriteSlices:
    nullable = field.is_nullable(version)
    if not field.is_array:
        assert field.struct is not None
        inner = _struct_writer(field.struct, version, flexible)

        def write(record: Any, add: Add) -> Slices[None]:
            if not nullable:
                yield from inner(record, add)
            elif record is None:
                add(b"\xff")
            else:
                add(b"\x01")
                yield from inner(record, add)

        return write
    nested = field.struct is not None and _has_arrays(field.struct, version)
    element: Any
    if nested:
        assert field.struct is not None
        element = _struct_writer(field.struct, version, flexible)
    else:
        element = element_writer(field, version, flexible)

    def write_array(values: Any, add: Add) -> Slices[None]:
        if values is None and nullable:
            add(wire.encode_array_size(-1, flexible))
            return
        add(wire.encode_array_size(len(values), flexible))
        for at, value in enumerate(values):
            if nested:
                yield from element(value, add)
                yield
            else:
                element(value, add)
                if not at % EVERY:
                    yield

    return write_array


def release(record: Record) -> Slices[None]:
    """Let go of a message's structs, which nobody needs any more, a few at a time: at once it takes 20 ms."""
    for field in record.DEFINITION.fields:
        values = record.__dict__.get(field.name)
        if not isinstance(values, list) or field.struct is None:
            continue
        while values:
            last = values[-1]
            if isinstance(last, Record) and any(each.struct is not None for each in last.DEFINITION.fields):
                yield from release(last)
                del values[-1]
            else:
                del values[-EVERY:]
            yield
