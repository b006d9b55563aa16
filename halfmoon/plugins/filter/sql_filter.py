"""A compiled SQL92 condition: from the tree (sql_tree.py) to what is asked of each record (sql_evaluation.py)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

from halfmoon.plugins.filter.header_needle import Header, needle
from halfmoon.plugins.filter.json_fields import Json
from halfmoon.plugins.filter.json_needle import json_needle
from halfmoon.plugins.filter.sql_evaluation import NoMatchError, evaluator
from halfmoon.plugins.filter.sql_json import Fields, reader_of
from halfmoon.plugins.filter.sql_tree import (
    Among,
    And,
    Compare,
    Constant,
    Contains,
    Equal,
    In,
    IsNull,
    Like,
    Node,
    Not,
    Or,
    Path,
    Property,
    Truth,
    paths_of,
)


def filter_of(tree: Node, max_value_bytes: int | None) -> SqlFilter:
    paths = paths_of(tree)
    return JsonSqlFilter(tree, paths, max_value_bytes) if paths else SqlFilter(tree)


class SqlFilter:
    """Matches the records for which the condition is true; neither those for which it is false, nor the unknown."""

    takes_long = False

    def __init__(self, tree: Node) -> None:
        self._evaluate = evaluator(tree)
        needed = needs_of(tree)
        self.needle: re.Pattern[bytes] | None = None if needed is None else _pattern(needed)

    def match(self, record: Any) -> bool:
        try:
            return self._evaluate(dict(record.headers)) is True
        except NoMatchError:
            return False


class JsonSqlFilter(SqlFilter):
    """One that names fields of the record's JSON value."""

    takes_long = True

    def __init__(self, tree: Node, paths: Mapping[int, Path], max_value_bytes: int | None) -> None:
        super().__init__(tree)
        self._read = reader_of(paths).read
        self._max_value_bytes = max_value_bytes

    def match(self, record: Any) -> bool:
        """Raises ValueTooLargeError, unless headers alone decide: there is no telling whether the record matches."""
        try:
            return self._evaluate(Fields(record.headers, record.value, self._fields)) is True
        except NoMatchError:
            return False

    def _fields(self, content: bytes | None) -> Sequence[Json]:
        if content is not None and self._max_value_bytes is not None and len(content) > self._max_value_bytes:
            raise ValueTooLargeError(f"the value has {len(content):,} bytes, the most are {self._max_value_bytes:,}")
        return self._read(content)


class ValueTooLargeError(Exception):
    """A record's value has more than `max_value_bytes`."""


class JsonText(Struct, frozen=True):
    """A text that stands in the JSON value: a field's content, or its name."""

    text: str
    is_name: bool


Need = Header | JsonText


def needs_of(node: Node) -> Sequence[Need] | None:
    """A record for which the condition is true has one of these. None: that cannot be told."""
    match node:
        case And(operands):
            return min(filter(None, map(needs_of, operands)), key=_cost, default=None)
        case Or(operands):
            sides = [needs_of(operand) for operand in operands]
            return None if None in sides else [need for side in sides if side for need in side]
        case Not(IsNull(Property(name))) | Not(Equal(Property(name), Constant())):
            return [(name, None)]
        case Equal(Property(name), Constant(str() as text)):
            return [(name, text.encode("utf-8", "surrogatepass"))]
        case Equal(Property(name), Constant() | Path()) | Equal(Constant() | Path(), Property(name)):
            return [(name, None)]
        case In(Property(name), texts, negated=False):
            return [(name, text.encode("utf-8", "surrogatepass")) for text in texts]
        case In(Property(name)) | Like(Property(name)) | Contains(operand=Property(name)):
            return [(name, None)]
        case Compare(left=Property(name)) | Compare(right=Property(name)):
            return [(name, None)]
        case Equal(Path(), Constant(str() as text)) | Equal(Constant(str() as text), Path()):
            return [JsonText(text, is_name=False)]
        case Among(Path(), choices, negated=False) if all(isinstance(choice.value, str) for choice in choices):
            return [JsonText(str(choice.value), is_name=False) for choice in choices]
    path = _path_that_is_there(node)
    names = [] if path is None else [step for step in path.steps if isinstance(step, str)]
    return [JsonText(max(names, key=len), is_name=True)] if names else None


def _path_that_is_there(node: Node) -> Path | None:
    """A field without which the condition is not true."""
    match node:
        case Not(IsNull(Path() as path)) | Not(Equal(Path() as path)) | Not(Equal(_, Path() as path)):
            return path
        case Equal(Path() as path) | Equal(_, Path() as path):
            return path
        case Compare(_, Path() as path) | Compare(_, _, Path() as path):
            return path
        case Truth(path) | Not(Truth(path)) | Among(path):
            return path
        case Like(Path() as path) | Contains(operand=Path() as path):
            return path
    return None


def _cost(needs: Sequence[Need]) -> tuple[bool, bool, bool, int]:
    """Less where fewer records have one of them, as far as can be told: a value is rarer than a name, and most JSON
    values of a topic have the same names."""
    texts = [need for need in needs if isinstance(need, JsonText)]
    names_only = any(not isinstance(need, JsonText) and need[1] is None for need in needs)
    return any(text.is_name for text in texts), names_only, bool(texts), len(needs)


def _pattern(needs: Sequence[Need]) -> re.Pattern[bytes]:
    headers = [need for need in needs if not isinstance(need, JsonText)]
    texts = [need.text for need in needs if isinstance(need, JsonText)]
    if not texts:
        return needle(headers)
    parts = [needle(headers).pattern] if headers else []
    return re.compile(b"|".join([*parts, json_needle(texts)]), re.DOTALL)
