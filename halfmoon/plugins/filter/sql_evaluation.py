"""A tree of `sql_tree` as a function of a record's properties, with the values and conversions of RocketMQ's Java.

Properties are texts. Compared with a number or with TRUE or FALSE, they are read as such: with a whole number as an int
or a long, as large as the number itself is; with a floating-point number as a double; with a truth value by
`Boolean.valueOf`. What cannot be read so makes the whole expression no match, whatever stands on the other side of an
OR; unless that side came first and was true. (org.apache.rocketmq.filter.expression.ComparisonExpression, 5.3.3.)

Logic has three values; None is the third. What a field of a JSON value takes part in is worked out in `sql_json`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from math import copysign, inf, isnan, nan
from operator import ge, gt, le, lt

from halfmoon.plugins.filter import sql_json
from halfmoon.plugins.filter.sql_like import like
from halfmoon.plugins.filter.sql_tree import (
    Among,
    And,
    Cast,
    Compare,
    Constant,
    Contains,
    Equal,
    In,
    IsNull,
    Like,
    Long,
    Negative,
    Node,
    Not,
    Or,
    Path,
    Property,
    Scalar,
    Truth,
)

Properties = Mapping[str, bytes | None]
Evaluate = Callable[[Properties], Scalar]


class NoMatchError(Exception):
    """A property cannot be read as what it is compared with: the record does not match."""


def evaluator(node: Node) -> Evaluate:
    """What the tree is for given properties. They are `sql_json.Fields` where it names fields of a JSON value."""
    match node:
        case Equal(left, right) if sql_json.is_json(left) or sql_json.is_json(right):
            return sql_json.equal(node, evaluator)
        case Compare(_, left, right) if sql_json.is_json(left) or sql_json.is_json(right):
            return sql_json.compare(node, evaluator)
        case IsNull(operand) if sql_json.is_json(operand):
            field = sql_json.side(operand, evaluator)
            return lambda properties: field(properties) is None
        case Truth(path):
            return sql_json.truth(path)
        case Among():
            return sql_json.among(node)
        case Contains(operand=Path()):
            return sql_json.contains(node)
        case Like(Path()):
            return sql_json.is_like(node)
        case Negative() if sql_json.is_json(node):
            return lambda properties: None  # where it is neither compared nor tested for null
        case Constant(value):
            return lambda properties: value
        case Property(name):
            return _property(name)
        case Cast(Property(name)):
            read = _property(name)
            return lambda properties: None if read(properties) is None else False
        case Not(operand):
            return _not(evaluator(operand))
        case Negative(operand):
            return _negative(evaluator(operand))
        case And((Compare(">=", Property(name), Constant(low)), Compare("<=", Property(other), Constant(high)))) if (
            name == other and type(low) is type(high)
        ):
            return _between(name, low, high)
        case And(operands):
            return _joined(tuple(map(evaluator, operands)), decisive=False)
        case Or(operands):
            return _joined(tuple(map(evaluator, operands)), decisive=True)
        case IsNull(operand):
            given = evaluator(operand)
            return lambda properties: given(properties) is None
        case Equal(left, right):
            return _equal(left, right)
        case Compare():
            return _compare(node)
        case In(Property(name), texts, negated):
            read = _property(name)
            return lambda properties: None if (text := read(properties)) is None else (text in texts) is not negated
        case Contains():
            return _contains(node)
        case Like(Property(name), pattern, escape, negated):
            read, matches = _property(name), like(pattern, escape)
            return lambda properties: None if (text := read(properties)) is None else matches(text) is not negated
    raise AssertionError(node)


# -- logic -------------------------------------------------------------------------------------------------------------


def _property(name: str) -> Callable[[Properties], str | None]:
    def read(properties: Properties) -> str | None:
        content = properties.get(name)
        if not content:
            return None
        try:
            return content.decode()
        except UnicodeDecodeError:  # no text, so no property
            return None

    return read


def _not(operand: Evaluate) -> Evaluate:
    def evaluate(properties: Properties) -> Scalar:
        value = operand(properties)
        return None if value is None else not value

    return evaluate


def _negative(operand: Evaluate) -> Evaluate:
    def evaluate(properties: Properties) -> Scalar:
        value = operand(properties)
        if isinstance(value, bool) or not isinstance(value, int | float):
            return None
        return Long(-value) if isinstance(value, Long) else -value

    return evaluate


def _joined(operands: tuple[Evaluate, ...], decisive: bool) -> Evaluate:
    """AND, where one False decides, or OR, where one True does; what comes behind it is not looked at."""

    def evaluate(properties: Properties) -> Scalar:
        result: Scalar = not decisive
        for operand in operands:
            value = operand(properties)
            if value is decisive:
                return decisive
            if value is None:
                result = None
        return result

    return evaluate


# -- comparing ---------------------------------------------------------------------------------------------------------


def _equal(left: Node, right: Node) -> Evaluate:
    if isinstance(left, Property) and isinstance(right, Constant) and isinstance(right.value, str):
        read, wanted = _property(left.name), right.value
        return lambda properties: None if (text := read(properties)) is None else text == wanted
    first, second = _left(left, right), evaluator(right)

    def evaluate(properties: Properties) -> Scalar:
        one, other = first(properties), second(properties)
        if one is None:
            return True if other is None else None
        return other is not None and order(one, other) == 0

    return evaluate


_ORDERS = {">": gt, ">=": ge, "<": lt, "<=": le}


def _left(left: Node, right: Node) -> Evaluate:
    """`left` as a value that is to be compared with `right`."""
    if isinstance(left, Property) and isinstance(right, Constant):
        wanted = right.value
        if isinstance(wanted, int | float) and not isinstance(wanted, bool):
            return _number(left.name, wanted)
    return evaluator(left)


def _number(name: str, model: int | float) -> Callable[[Properties], int | float | None]:
    """The property as a number of the kind that `model` is. Raises NoMatchError."""
    read = _property(name)

    def number(properties: Properties) -> int | float | None:
        content = properties.get(name)
        if content and len(content) < 10 and content.isdigit():
            return int(content)  # the same in Java's int, long and double
        text = read(properties)
        return None if text is None else _read_as(text, model)

    return number


def _between(name: str, low: Scalar, high: Scalar) -> Evaluate:
    """As its two comparisons, with the property read once."""
    assert isinstance(low, int | float)
    assert isinstance(high, int | float)
    read = _number(name, low)

    def evaluate(properties: Properties) -> Scalar:
        number = read(properties)
        return None if number is None else order(number, low) >= 0 and order(number, high) <= 0

    def evaluate_whole(properties: Properties) -> Scalar:
        number = read(properties)
        return None if number is None else low <= number <= high

    return evaluate_whole if isinstance(low, int) else evaluate


def _compare(node: Compare) -> Evaluate:
    holds = _ORDERS[node.symbol]
    first, second = _left(node.left, node.right), evaluator(node.right)

    def evaluate(properties: Properties) -> Scalar:
        one = first(properties)
        if one is None:
            return None
        other = second(properties)
        if other is None:
            return None
        if isinstance(one, str) and isinstance(other, str):
            one, other = double(one), double(other)
        return bool(holds(order(one, other), 0))

    return evaluate


def _contains(node: Contains) -> Evaluate:
    read, wanted, negated = evaluator(node.operand), node.text, node.negated
    test = {"CONTAINS": str.__contains__, "STARTSWITH": str.startswith, "ENDSWITH": str.endswith}[node.keyword]

    def evaluate(properties: Properties) -> Scalar:
        text = read(properties)
        return isinstance(text, str) and wanted != "" and test(text, wanted) is not negated

    return evaluate


def order(one: str | int | float | bool, other: str | int | float | bool) -> int:
    """−1, 0 or 1; values that cannot be compared are unequal. Raises NoMatchError."""
    if isinstance(one, bool):
        if isinstance(other, str):
            raise NoMatchError("a truth value is compared with a text")
        return (one > other) - (one < other) if isinstance(other, bool) else -1
    if isinstance(one, str):
        if isinstance(other, str):
            return (one > other) - (one < other)
        one = _read_as(one, other)
        if isinstance(one, bool):
            return (one > other) - (one < other)
    elif isinstance(other, str):
        other = _read_as(other, one)
    elif isinstance(other, bool):
        return -1
    if isinstance(one, int) and isinstance(other, int):
        return (one > other) - (one < other)
    return _order_of_doubles(float(one), float(other))


def _read_as(text: str, other: int | float | bool) -> int | float | bool:
    if isinstance(other, bool):
        return text.lower() == "true"
    if isinstance(other, float):
        return double(text)
    return whole(text, 64 if isinstance(other, Long) else 32)


def _order_of_doubles(one: float, other: float) -> int:
    """As Java's `Double.compareTo`: −0.0 is below 0.0, and NaN above all."""
    if one < other:
        return -1
    if one > other:
        return 1
    if one == other:
        return int(copysign(1, one) > copysign(1, other)) - int(copysign(1, one) < copysign(1, other))
    return isnan(one) - isnan(other)


_WHOLE = re.compile(r"[+-]?\d+")


def whole(text: str, bits: int) -> int:
    """As Java's `Integer.valueOf` and `Long.valueOf`. Raises NoMatchError."""
    if _WHOLE.fullmatch(text):
        try:
            number = int(text)
        except ValueError:  # thousands of digits
            number = 1 << 64
        if -(1 << bits - 1) <= number < 1 << bits - 1:
            return number
    raise NoMatchError(f"{text[:50]!r} is no whole number of {bits} bits")


_DOUBLE = re.compile(
    r"""(?P<sign>[+-]?) (?: (?P<word>NaN|Infinity)
      | (?P<decimal>(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)[fFdD]?
      | (?P<hexadecimal>0[xX](?:[0-9a-fA-F]+\.?|[0-9a-fA-F]*\.[0-9a-fA-F]+)[pP][+-]?[0-9]+)[fFdD]? )""",
    re.VERBOSE,
)
_BLANKS = "".join(map(chr, range(0x21)))


def double(text: str) -> float:
    """As Java's `Double.valueOf`. Raises NoMatchError."""
    found = _DOUBLE.fullmatch(text.strip(_BLANKS))
    if found is None:
        raise NoMatchError(f"{text[:50]!r} is no number")
    if found["word"]:
        number = nan if found["word"] == "NaN" else inf
    elif found["decimal"]:
        number = float(found["decimal"])
    else:
        try:
            number = float.fromhex(found["hexadecimal"])
        except OverflowError:
            number = inf
    return -number if found["sign"] == "-" else number
