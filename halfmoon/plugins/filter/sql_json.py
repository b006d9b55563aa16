"""Comparisons of SQL92 in which a field of a JSON value takes part.

A field knows its type, so nothing is converted, and numbers are compared exactly, whatever their size. What is of two
types cannot be compared: that is unknown, as everything that is compared with null. A header is a text that is read as
what the field is. Texts are ordered by their characters' code points, as the bytes of UTF-8 are.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from decimal import Decimal
from operator import ge, gt, le, lt
from typing import Any

from halfmoon.plugins.filter.json_fields import Json, JsonFields, Structure, number
from halfmoon.plugins.filter.sql_like import like
from halfmoon.plugins.filter.sql_tree import (
    Among,
    Compare,
    Constant,
    Contains,
    Equal,
    Like,
    Negative,
    Node,
    Path,
    Property,
    Scalar,
)

Read = Callable[[Any], Json]
"""(the record's Fields) → what stands on one side."""
Unknown = bool | None
Rule = Callable[[Json, Json], int | None]
"""How two sides differ: 0 where they are equal; None where they cannot be compared."""
Evaluate = Callable[[Any], Unknown]


class Fields(dict[str, bytes | None]):
    """Of one record: its headers, and what the condition's paths lead to, which is read when it is first asked for."""

    __slots__ = ("_content", "_found", "_reader")

    def __init__(self, headers: Any, content: bytes | None, reader: Callable[[bytes | None], Any]) -> None:
        super().__init__(headers)
        self._content = content
        self._reader = reader
        self._found: Any = None

    def json(self) -> Any:
        """By slots. Raises what the reader raises."""
        if self._found is None:
            self._found = self._reader(self._content)
        return self._found


def reader_of(paths: Mapping[int, Path]) -> JsonFields:
    return JsonFields([paths[slot].steps for slot in range(len(paths))])


def is_json(node: Node) -> bool:
    """Whether it is a field, with or without a sign."""
    return isinstance(node, Path) or (isinstance(node, Negative) and is_json(node.operand))


def field(path: Path) -> Read:
    slot = path.slot
    return lambda fields: fields.json()[slot]


def truth(path: Path) -> Evaluate:
    read = field(path)

    def evaluate(fields: Any) -> Unknown:
        value = read(fields)
        return value if isinstance(value, bool) else None

    return evaluate


def equal(node: Equal, others: Callable[[Node], Callable[[Any], Scalar]]) -> Evaluate:
    """`others` works out what is neither a field, nor a constant, nor a header."""
    if isinstance(node.left, Path) and isinstance(node.right, Constant) and isinstance(node.right.value, str):
        read, wanted = field(node.left), node.right.value

        def is_text(fields: Any) -> Unknown:
            value = read(fields)
            return value == wanted if isinstance(value, str) else None

        return is_text
    compared = _compared(node.left, node.right, others, _difference)

    def evaluate(fields: Any) -> Unknown:
        found = compared(fields)
        return None if found is None else found == 0

    return evaluate


_ORDERS = {">": gt, ">=": ge, "<": lt, "<=": le}


def compare(node: Compare, others: Callable[[Node], Callable[[Any], Scalar]]) -> Evaluate:
    holds = _ORDERS[node.symbol]
    compared = _compared(node.left, node.right, others, _order)

    def evaluate(fields: Any) -> Unknown:
        found = compared(fields)
        return None if found is None else bool(holds(found, 0))

    return evaluate


def among(node: Among) -> Evaluate:
    """As the equalities with all of them: unknown where none holds and one cannot be compared."""
    read, negated = field(node.operand), node.negated
    choices = [_exact(choice) for choice in node.choices]
    texts = frozenset(choice for choice in choices if isinstance(choice, str))
    truths = frozenset(choice for choice in choices if isinstance(choice, bool))
    numbers = frozenset(choice for choice in choices if not isinstance(choice, str | bool))
    kinds = sum(map(bool, (texts, truths, numbers)))

    def evaluate(fields: Any) -> Unknown:
        value = read(fields)
        if value is None or isinstance(value, Structure):
            return None
        of_kind = texts if isinstance(value, str) else truths if isinstance(value, bool) else numbers
        if value in of_kind:
            return not negated
        return negated if of_kind and kinds == 1 else None

    return evaluate


def contains(node: Contains) -> Evaluate:
    assert isinstance(node.operand, Path)
    read, wanted, negated = field(node.operand), node.text, node.negated
    test = {"CONTAINS": str.__contains__, "STARTSWITH": str.startswith, "ENDSWITH": str.endswith}[node.keyword]

    def evaluate(fields: Any) -> Unknown:
        value = read(fields)
        return wanted != "" and test(value, wanted) is not negated if isinstance(value, str) else None

    return evaluate


def is_like(node: Like) -> Evaluate:
    assert isinstance(node.operand, Path)
    read, matches, negated = field(node.operand), like(node.pattern, node.escape), node.negated

    def evaluate(fields: Any) -> Unknown:
        value = read(fields)
        return matches(value) is not negated if isinstance(value, str) else None

    return evaluate


# -- two sides ---------------------------------------------------------------------------------------------------------


def _compared(
    left: Node, right: Node, others: Callable[[Node], Callable[[Any], Scalar]], rule: Rule
) -> Callable[[Any], int | None]:
    """What the rule says of both sides, one of which is a field."""
    if isinstance(left, Property):
        turned = _compared(right, left, others, rule)
        return lambda fields: None if (found := turned(fields)) is None else -found
    first = side(left, others)
    if isinstance(right, Property):
        name = right.name
        return lambda fields: _with_header(first(fields), fields.get(name), rule)
    second = side(right, others)
    return lambda fields: rule(first(fields), second(fields))


def side(node: Node, others: Callable[[Node], Callable[[Any], Scalar]]) -> Read:
    """What stands on one side of a comparison, but for a header."""
    match node:
        case Path():
            return field(node)
        case Negative(operand):
            return _negative(side(operand, others))
        case Constant():
            value = _exact(node)
            return lambda fields: value
    return others(node)  # type: ignore[return-value]  # a condition


def _negative(read: Read) -> Read:
    def negative(fields: Any) -> Json:
        value = read(fields)
        if isinstance(value, Decimal):
            return value.copy_negate()  # `-value` rounds
        return -value if isinstance(value, int) and not isinstance(value, bool) else None

    return negative


def _exact(constant: Constant) -> str | int | Decimal | bool:
    value = constant.value if constant.exact is None else constant.exact
    assert not isinstance(value, float)
    assert value is not None
    return value


_NUMBER = re.compile(r"[+-]?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
"""As JSON writes numbers, and with more zeros or a plus before them."""


def _with_header(one: Json, content: bytes | None, rule: Rule) -> int | None:
    if not content:
        return None
    try:
        text = content.decode()
    except UnicodeDecodeError:
        return None
    if isinstance(one, str):
        return rule(one, text)
    if isinstance(one, bool):
        return rule(one, text.lower() == "true")  # as of headers: Java's Boolean.valueOf
    return rule(one, number(text) if _NUMBER.fullmatch(text) else None)


def _difference(one: Json, other: Json) -> int | None:
    """0 where they are equal."""
    if isinstance(one, bool) and isinstance(other, bool):
        return int(one is not other)
    return _order(one, other)


def _order(one: Json, other: Json) -> int | None:
    """−1, 0 or 1 of texts and of numbers."""
    if isinstance(one, str):
        return (one > other) - (one < other) if isinstance(other, str) else None
    if isinstance(one, bool) or isinstance(other, bool):
        return None
    if isinstance(one, int | Decimal) and isinstance(other, int | Decimal):
        return (one > other) - (one < other)
    return None
