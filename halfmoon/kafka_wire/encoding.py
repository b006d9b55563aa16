"""Write messages by their definitions.

A writer is a closure per field, made once per message and version; neighbouring fields of fixed size are written by one
`pack`. What a field of the version must not be (None, a number out of its range) raises struct.error, TypeError or
AttributeError: it is our own mistake, and not the peer's.
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Callable
from operator import attrgetter
from typing import Any

from halfmoon.kafka_wire import primitives as wire
from halfmoon.kafka_wire.definition import Field, Fields
from halfmoon.kafka_wire.primitives import FIXED

Add = Callable[[bytes], None]
Write = Callable[[Any, Add], None]
Encode = Callable[[Any], bytes]

_NO_UUID = bytes(wire.UUID_SIZE)
_NOT_ASKED = -(1 << 31)
"""What a bitfield is that is None."""


def message_encoder(fields: Fields, version: int, flexible: bool) -> Encode:
    """What writes one version of a message: all of it but the header."""
    write = _struct_writer(fields, version, flexible)

    def encode(message: Any) -> bytes:
        parts: list[bytes] = []
        write(message, parts.append)
        return b"".join(parts)

    return encode


def _struct_writer(fields: Fields, version: int, flexible: bool) -> Write:
    steps: list[Write] = []
    run: list[Field] = []
    for field in fields.plain(version):
        if field.kind in FIXED and not field.is_array:
            run.append(field)
            continue
        if run:
            steps.append(_run_writer(run))
            run = []
        steps.append(_of(field.name, field_writer(field, version, flexible)))
    if run:
        steps.append(_run_writer(run))
    if flexible:
        steps.append(tags_writer(fields, version))
    if len(steps) == 1:
        return steps[0]

    def write(record: Any, add: Add) -> None:
        for step in steps:
            step(record, add)

    return write


def _run_writer(run: list[Field]) -> Write:
    """Fields of fixed size, one behind the other."""
    pack = struct.Struct(">" + "".join(FIXED[field.kind] for field in run)).pack
    get = attrgetter(*(field.name for field in run))
    if len(run) == 1:
        return lambda record, add: add(pack(get(record)))
    return lambda record, add: add(pack(*get(record)))


def _of(name: str, write: Write) -> Write:
    get = attrgetter(name)
    return lambda record, add: write(get(record), add)


def tags_writer(fields: Fields, version: int) -> Write:
    """Those tagged fields that have another value than their default."""
    tagged = list(fields.tagged(version).items())
    if not tagged:
        return lambda record, add: add(b"\0")
    writers = [(tag, field.name, field.default, field_writer(field, version, True)) for tag, field in tagged]

    def write(record: Any, add: Add) -> None:
        count, parts = 0, []
        for tag, name, default, put in writers:
            value = getattr(record, name)
            if value != default:
                content: list[bytes] = []
                put(value, content.append)
                said = b"".join(content)
                parts += [wire.encode_uvarint(tag), wire.encode_uvarint(len(said)), said]
                count += 1
        add(wire.encode_uvarint(count))
        for part in parts:
            add(part)

    return write


def field_writer(field: Field, version: int, flexible: bool) -> Write:
    if field.is_array:
        return _array_writer(field, version, flexible)
    write = element_writer(field, version, flexible)
    if field.struct is None or not field.is_nullable(version):
        return write

    def write_nullable(record: Any, add: Add) -> None:
        """A byte says whether the struct is there: -1 is null (KIP-893)."""
        if record is None:
            add(b"\xff")
        else:
            add(b"\x01")
            write(record, add)

    return write_nullable


def _array_writer(field: Field, version: int, compact: bool) -> Write:
    null = wire.encode_array_size(-1, compact)
    nullable = field.is_nullable(version)
    if field.kind in FIXED:
        layout = FIXED[field.kind]

        def write_numbers(values: Any, add: Add) -> None:
            if values is None and nullable:
                add(null)
                return
            size = len(values)
            add(wire.encode_array_size(size, compact))
            add(struct.pack(f">{size}{layout}", *values))

        return write_numbers
    element = element_writer(field, version, compact)

    def write(values: Any, add: Add) -> None:
        if values is None and nullable:
            add(null)
            return
        add(wire.encode_array_size(len(values), compact))
        for value in values:
            element(value, add)

    return write


def element_writer(field: Field, version: int, compact: bool) -> Write:
    if field.struct is not None:
        return _struct_writer(field.struct, version, compact)
    nullable = field.is_nullable(version) and not field.is_array
    kind = field.kind
    if kind == "string":
        return _string_writer(compact, nullable)
    if kind == "uuid":
        return _write_uuid
    if kind == "bitfield":
        return _write_bits
    if kind in FIXED:  # a tagged field
        pack = struct.Struct(">" + FIXED[kind]).pack
        return lambda value, add: add(pack(value))
    assert kind in ("bytes", "records"), f"no encoder for {kind}"
    return _bytes_writer(compact, nullable)


def _string_writer(compact: bool, nullable: bool) -> Write:
    encode = wire.encode_string
    if nullable:
        return lambda value, add: add(encode(value, compact))

    def write(value: Any, add: Add) -> None:
        if value is None:
            raise TypeError("a string that may not be null is None")
        add(encode(value, compact))

    return write


def _bytes_writer(compact: bool, nullable: bool) -> Write:
    null = wire.encode_array_size(-1, compact)

    def write(value: Any, add: Add) -> None:
        if value is None and nullable:
            add(null)
        else:
            add(wire.encode_array_size(len(value), compact))
            add(value)

    return write


def _write_uuid(value: uuid.UUID | None, add: Add) -> None:
    add(_NO_UUID if value is None else value.bytes)


def _write_bits(bits: Any, add: Add) -> None:
    value = _NOT_ASKED if bits is None else sum(1 << bit for bit in bits)
    add(wire.INT32.pack(value - (1 << 32) if value >= 1 << 31 else value))
