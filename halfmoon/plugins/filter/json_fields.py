"""Fields of a JSON value, by paths from its root: `value.total`, `value.items[0].sku`.

Only what the paths name becomes Python objects. A value is read level by level: of an object msgspec hands over the
wanted fields as the bytes that they are in, and passes over the others at 1 GB/s, checking that they are JSON; of an
array, the same for elements by their indexes. At the end of a path one scalar is left, and that alone is converted.

What a path leads to is a `Json`: a text, a truth value, a number as it is written (a whole one, or a decimal one that
nothing was rounded of), STRUCTURE for an object or an array, and None for JSON's null, for what is not there, and for
every path of a value that is no JSON text (RFC 8259) in UTF-8. Of fields with the same name the last one counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from decimal import Decimal, InvalidOperation
from typing import Any, Final

import msgspec
from msgspec import UNSET, DecodeError, Raw, ValidationError

Step = str | int
"""A field's name, or an element's index from 0."""


class Structure:
    """The type of STRUCTURE."""

    def __repr__(self) -> str:
        return "STRUCTURE"


STRUCTURE: Final = Structure()
"""An object or an array: it is there, and equals nothing."""

Json = str | int | Decimal | bool | Structure | None

_FEW_DIGITS: Final = 18
"""A whole number with more characters than these is read as a decimal number, whose digits cost linear time."""
_NAMES_MSGSPEC_REFUSES: Final = frozenset(map(chr, range(0x20))) | {'"', "\\"}

_decode_text = msgspec.json.Decoder(str).decode


class JsonFields:
    """Reads the fields at certain paths, each of one step or more."""

    def __init__(self, paths: Sequence[Sequence[Step]]) -> None:
        self._count = len(paths)
        self._root = _Level(list(enumerate(paths)))

    def read(self, content: bytes | None) -> Sequence[Json]:
        """What each path leads to, in the order of the paths."""
        found: list[Json] = [None] * self._count
        if content is not None:
            try:
                content.decode()  # msgspec does not look at texts that it passes over
                self._root.read(content, found)
            except (DecodeError, UnicodeDecodeError, RecursionError):
                return [None] * self._count
        return found


class _Level:
    """What is wanted at one place of a value: the scalar, fields by name, elements by index."""

    def __init__(self, wanted: Iterable[tuple[int, Sequence[Step]]]) -> None:
        """(which path, the steps that are left of it)"""
        self._here: list[int] = []
        below: dict[Step, list[tuple[int, Sequence[Step]]]] = {}
        for number, steps in wanted:
            if steps:
                below.setdefault(steps[0], []).append((number, steps[1:]))
            else:
                self._here.append(number)
        names = {step: _Level(rest) for step, rest in below.items() if isinstance(step, str)}
        elements = {step: _Level(rest) for step, rest in below.items() if isinstance(step, int)}
        self._by_name = _by_name(names) if names else None
        self._by_index = _by_index(elements) if elements else None

    def read(self, content: bytes | Raw, found: list[Json]) -> None:
        """Raises DecodeError, and RecursionError where something is nested too deeply."""
        if self._here:
            scalar = _scalar(bytes(memoryview(content)[:1]), content)
            for number in self._here:
                found[number] = scalar
        if self._by_name is not None:
            self._by_name.read(content, found)
        if self._by_index is not None:
            self._by_index.read(content, found)


class _Parts:
    """Hands the parts of an object or an array on to the levels that they belong to."""

    def __init__(self, parts: type, levels: Sequence[tuple[str, _Level]]) -> None:
        """`parts`: a Struct of Raw fields, which are optional. `levels`: by those fields."""
        self._decode: Callable[[bytes | Raw], Any] = msgspec.json.Decoder(parts).decode
        self._levels = levels

    def read(self, content: bytes | Raw, found: list[Json]) -> None:
        try:
            parts: Any = self._decode(content)
        except ValidationError:  # an array in the place of an object, or the other way round
            return
        for field, level in self._levels:
            part = getattr(parts, field)
            if part is not UNSET:
                level.read(part, found)


class _AllNames:
    """As `_Parts`, for names that no Struct's field can have."""

    def __init__(self, levels: dict[str, _Level]) -> None:
        self._decode = msgspec.json.Decoder(dict[str, Raw]).decode
        self._levels = levels

    def read(self, content: bytes | Raw, found: list[Json]) -> None:
        try:
            parts = self._decode(content)
        except ValidationError:
            return
        for name, level in self._levels.items():
            if name in parts:
                level.read(parts[name], found)


def _by_name(levels: dict[str, _Level]) -> _Parts | _AllNames:
    if any(not _NAMES_MSGSPEC_REFUSES.isdisjoint(name) for name in levels):
        return _AllNames(levels)
    fields = {f"field{number}": name for number, name in enumerate(levels)}
    parts = msgspec.defstruct("Fields", [(field, Raw, UNSET) for field in fields], rename=fields, gc=False)
    return _Parts(parts, [(field, levels[name]) for field, name in fields.items()])


def _by_index(levels: dict[int, _Level]) -> _Parts:
    fields = [(f"element{index}", Raw, UNSET) for index in range(max(levels) + 1)]
    parts = msgspec.defstruct("Elements", fields, array_like=True, gc=False)
    return _Parts(parts, [(f"element{index}", level) for index, level in levels.items()])


def _scalar(first: bytes, content: bytes | Raw) -> Json:
    """`first`: its first byte. It is JSON, and nothing stands around it."""
    if first == b'"':
        return _decode_text(content)
    if first in b"{[":
        return STRUCTURE
    text = bytes(content).decode()
    if text in _WORDS:
        return _WORDS[text]
    return number(text)


_WORDS: Final[dict[str, bool | None]] = {"true": True, "false": False, "null": None}


def number(text: str) -> int | Decimal | None:
    """A number as JSON writes it; None for an exponent that is beyond decimal numbers (of a quintillion)."""
    if len(text) <= _FEW_DIGITS and text.lstrip("-").isdigit():
        return int(text)
    try:
        made = Decimal(text)
    except InvalidOperation:
        return None
    return made if made.is_finite() else None
