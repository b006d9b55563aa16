"""The objects that messages and their structs are read into and written from."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, ClassVar

from halfmoon.kafka_wire.definition import Fields


class Record:
    """A message or a struct. A field that was not set, or is not in the version that was read, has its default, which
    is an attribute of the class: a default that is a list is shared, so never append to one that you did not set."""

    DEFINITION: ClassVar[Fields]
    encode: ClassVar[Callable[[Any, int], bytes]]
    """Of a message: its bytes in a version, without a header."""
    encode_slices: ClassVar[Callable[[Any, int], Generator[None, None, list[bytes]]]]
    """The same in slices and pieces, see `slices`."""
    _NAMES: ClassVar[frozenset[str]] = frozenset()

    def __init__(self, **fields: Any) -> None:
        if not fields.keys() <= self._NAMES:
            raise TypeError(f"{type(self).__name__} has no field {', '.join(sorted(fields.keys() - self._NAMES))}")
        self.__dict__.update(fields)

    def __eq__(self, other: object) -> bool:
        if type(self) is not type(other):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in self._NAMES)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        names = [field.name for field in self.DEFINITION.fields if field.name in self.__dict__]
        return f"{type(self).__name__}({', '.join(f'{name}={getattr(self, name)!r}' for name in names)})"


def make_types(fields: Fields) -> dict[str, type[Record]]:
    """A class for these fields and one for each struct below them, by their names. A struct's class is also an
    attribute of the class that has a field of it, under its own name."""
    made: dict[str, type[Record]] = {}
    _make_type(fields, made)
    return made


def _make_type(fields: Fields, made: dict[str, type[Record]]) -> type[Record]:
    attributes: dict[str, Any] = {field.name: field.default for field in fields.fields}
    attributes["_NAMES"] = frozenset(attributes)
    attributes["DEFINITION"] = fields
    for field in fields.fields:
        if field.struct is not None:
            attributes[field.kind] = made.get(field.kind) or _make_type(field.struct, made)
    made[fields.name] = fields.type = type(fields.name, (Record,), attributes)
    return made[fields.name]
