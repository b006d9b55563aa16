"""The definition of a message: its fields, in which versions they are there, and what they are where nobody sets them.

A file of `definitions/` has two parts, `request` and `response`, with a field in each line, in the order on the wire:

    name type [versions][, null [versions]][, tag N [versions]][ = default]

    type       bool int8 int16 uint16 int32 int64 float64 uuid string bytes records bitfield, a struct by its name, or
               an array of one of them in brackets. The fields of a struct follow with four more spaces; where a struct
               occurs again in the same part, they do not. A bitfield is an int32 that is a set of bit numbers.
    versions   `3+`, `3-5` or `3`; every version where nothing is said. Of `null` and `tag`: those in which the field
               may be null, and in which it is a tagged field (KIP-482); the field's own where nothing is said.
    default    a number, `true`, `null` or a text; else 0, false, "" or an empty array, and null for a uuid, a bitfield
               and a struct.

Which versions are flexible (KIP-482) is said by the table in `messages.py`. Facts: https://kafka.apache.org/protocol.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from msgspec import Struct

Versions = tuple[int, int]
"""The first and the last."""

NEVER: Versions = (0, -1)
_LATEST = 1 << 15
_FOLDER = Path(__file__).parent / "definitions"
_DEFAULTS: dict[str, Any] = {
    "bool": False, "int8": 0, "int16": 0, "uint16": 0, "int32": 0, "int64": 0, "float64": 0.0, "uuid": None,
    "string": "", "bytes": b"", "records": b"", "bitfield": None,
}  # fmt: skip
_LINE = re.compile(
    r"(?P<indent> +)(?P<name>\w+) (?P<array>\[?)(?P<kind>\w+)\]?(?: (?P<versions>\d[\d+-]*))?"
    r"(?P<null>, null(?: (?P<null_versions>\d[\d+-]*))?)?"
    r"(?:, tag (?P<tag>\d+)(?: (?P<tag_versions>\d[\d+-]*))?)?(?: = (?P<default>\S+))?"
)


class Field(Struct, frozen=True):
    name: str
    kind: str
    """Of the element, if it is an array."""
    is_array: bool
    struct: Fields | None
    """The fields of the struct that it is, or that its elements are."""
    versions: Versions
    null: Versions
    """In which it may be null."""
    tag: int | None
    tagged: Versions
    default: Any

    def is_in(self, version: int) -> bool:
        return self.versions[0] <= version <= self.versions[1]

    def is_nullable(self, version: int) -> bool:
        return self.null[0] <= version <= self.null[1]

    def is_tagged(self, version: int) -> bool:
        return self.tagged[0] <= version <= self.tagged[1]


class Fields:
    """Of a message or a struct, and the class of its objects."""

    __slots__ = ("fields", "name", "type")

    def __init__(self, name: str) -> None:
        self.name = name
        self.fields: list[Field] = []
        self.type: type[Any] = object

    def plain(self, version: int) -> list[Field]:
        """The fields of a version that are no tagged fields, in their order."""
        return [field for field in self.fields if field.is_in(version) and not field.is_tagged(version)]

    def tagged(self, version: int) -> dict[int, Field]:
        """The tagged ones, by tag, in the order of their tags."""
        found = [field for field in self.fields if field.is_in(version) and field.is_tagged(version)]
        return {field.tag: field for field in sorted(found, key=lambda field: field.tag or 0) if field.tag is not None}


def read(api: str) -> tuple[Fields, Fields]:
    """The request and the response of an API, by its name."""
    text = (_FOLDER / f"{api}.txt").read_text("utf-8")
    head, request, response = re.split(r"^(?:request|response)\n", text, flags=re.MULTILINE)
    assert not head, f"{api}: a line before 'request'"
    return _message(f"{api}Request", request), _message(f"{api}Response", response)


def _message(name: str, text: str) -> Fields:
    message = Fields(name)
    lines = _Lines([_matched(name, line) for line in text.splitlines()])
    _read_fields(lines, message, 4, {})
    assert lines.next is None, f"{name}: a line with a wrong indent: {lines.next[0]!r}"
    return message


def _matched(name: str, line: str) -> re.Match[str]:
    found = _LINE.fullmatch(line)
    assert found is not None, f"{name}: a line that is no field: {line!r}"
    return found


class _Lines:
    """The lines that are left."""

    def __init__(self, lines: list[re.Match[str]]) -> None:
        self._lines: Iterator[re.Match[str]] = iter(lines)
        self.next = next(self._lines, None)

    def take(self, indent: int) -> re.Match[str] | None:
        """The next line, if it has this indent."""
        line = self.next
        if line is None or len(line["indent"]) != indent:
            return None
        self.next = next(self._lines, None)
        return line


def _read_fields(lines: _Lines, into: Fields, indent: int, structs: dict[str, Fields]) -> None:
    while (line := lines.take(indent)) is not None:
        kind = line["kind"]
        if kind not in _DEFAULTS and kind not in structs:
            structs[kind] = Fields(kind)
            _read_fields(lines, structs[kind], indent + 4, structs)
        into.fields.append(_field(line, structs.get(kind)))


def _field(line: re.Match[str], struct: Fields | None) -> Field:
    versions = _versions(line["versions"], (0, _LATEST))
    return Field(
        line["name"],
        line["kind"],
        bool(line["array"]),
        struct,
        versions,
        _versions(line["null_versions"], versions) if line["null"] else NEVER,
        None if line["tag"] is None else int(line["tag"]),
        NEVER if line["tag"] is None else _versions(line["tag_versions"], versions),
        _default(line),
    )


def _versions(text: str | None, otherwise: Versions) -> Versions:
    if text is None:
        return otherwise
    first, dash, last = text.partition("-")
    if text.endswith("+"):
        return int(text[:-1]), _LATEST
    return int(first), int(last if dash else first)


def _default(line: re.Match[str]) -> Any:
    said, kind = line["default"], line["kind"]
    if said == "null":
        return None
    if line["array"]:
        return []
    if said is None:
        return _DEFAULTS.get(kind)
    return said == "true" if kind == "bool" else said if kind == "string" else int(said)
