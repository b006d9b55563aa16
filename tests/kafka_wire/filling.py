"""Messages with a different value in each field, in the project's classes and in kafka-python's.

python -m tests.kafka_wire.filling        writes tests/golden/kafka_messages.tsv with kafka-python's encoder
"""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from halfmoon.kafka_wire.definition import Field, Fields
from halfmoon.kafka_wire.messages import REQUESTS, RESPONSES, Message

GOLDEN = Path(__file__).parents[1] / "golden" / "kafka_messages.tsv"
FULL, EMPTY = "full", "empty"
"""Arrays of two and nothing null; arrays of none and all null that may be, without tagged fields."""
_BITS = {"int8": 7, "int16": 15, "uint16": 16, "int32": 31, "int64": 63}

Case = tuple[Message, int, str]


def cases() -> Iterator[Case]:
    """Each message in each version that its definition knows."""
    for kinds in (REQUESTS, RESPONSES):
        for kind in kinds.values():
            for version in range(kind.api.last_version + 1):
                yield from ((kind, version, how) for how in (FULL, EMPTY))


def filled(kind: Message, version: int, how: str, type_of: Any = None) -> Any:
    """A message. `type_of`: the class to make it of, which has the classes of its structs as attributes."""
    return _struct(kind.fields, type_of or kind.type, version, how, itertools.count(1))


def _struct(fields: Fields, made: Any, version: int, how: str, number: Iterator[int]) -> Any:
    given = {}
    for field in fields.fields:
        if field.is_in(version) and (how == FULL or not field.is_tagged(version)):
            given[field.name] = _value(field, made, version, how, number)
    return made(**given)


def _value(field: Field, made: Any, version: int, how: str, number: Iterator[int]) -> Any:
    if how == EMPTY and field.is_nullable(version):
        return None
    if field.is_array:
        return [_one(field, made, version, how, number) for _ in range(2 if how == FULL else 0)]
    return _one(field, made, version, how, number)


def _one(field: Field, made: Any, version: int, how: str, number: Iterator[int]) -> Any:
    if field.struct is not None:
        return _struct(field.struct, getattr(made, field.kind), version, how, number)
    n = next(number)
    if field.kind in _BITS:
        return n * 0x0123456789ABCDEF % (1 << _BITS[field.kind]) * (-1 if n % 3 == 0 and field.kind != "uint16" else 1)
    values: dict[str, Any] = {
        "bool": n % 2 == 1,
        "float64": n / 7,
        "uuid": uuid.UUID(int=n * 0x0123456789ABCDEF0123456789ABCDEF % (1 << 128)),
        "string": f"näme {n}" + "x" * (130 * (n % 11 == 0)),
        "bytes": bytes(n % 9) + bytes(200 * (n % 13 == 0)),
        "records": b"records %d" % n,
        "bitfield": frozenset({n % 31, 3}),
    }
    return values[field.kind] if how == FULL else type(values[field.kind])() if field.kind != "uuid" else None


def rows() -> dict[tuple[str, int, str], bytes]:
    """The golden bytes, by message, version and filling."""
    lines = [line.split("\t") for line in GOLDEN.read_text().splitlines()]
    return {(name, int(version), how): bytes.fromhex(said) for name, version, how, said in lines}


def in_kafka_python(kind: Message) -> Any:
    """Its class of a message; None for one that it does not have."""
    import kafka.protocol.admin
    import kafka.protocol.consumer
    import kafka.protocol.metadata
    import kafka.protocol.producer
    import kafka.protocol.sasl

    packages = (
        kafka.protocol.admin, kafka.protocol.consumer, kafka.protocol.metadata, kafka.protocol.producer,
        kafka.protocol.sasl,
    )  # fmt: skip
    return next((getattr(package, kind.name) for package in packages if hasattr(package, kind.name)), None)


def main() -> None:
    """The rows of messages that kafka-python does not have stay as they are: its encoder made them, too, from Kafka's
    definitions."""
    lines, old = [], rows() if GOLDEN.exists() else {}
    for kind, version, how in cases():
        theirs = in_kafka_python(kind)
        if theirs is None:
            said = old[kind.name, version, how]
        else:
            said = bytes(filled(kind, version, how, theirs).encode(version=version))
        lines.append(f"{kind.name}\t{version}\t{how}\t{said.hex()}\n")
    GOLDEN.write_text("".join(lines))


if __name__ == "__main__":
    main()
