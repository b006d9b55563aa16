r"""Bytes that stand in the value of every record that matches, so that most others need not be read.

`$.items[?@.sku == 'A-7']` can only select something where the names `items` and `sku` stand, and the text `A-7`. One
of these is searched for: the text, since names tend to be in every record.

JSON lets a string be written in many ways: `"sku"` may as well stand there as `"\u0073ku"`. But a string that is not
written as it reads has a backslash in it. So a record without the string and without such a backslash does not match.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from jsonpath_rfc9535 import JSONPathQuery
from jsonpath_rfc9535.filter_expressions import (
    ComparisonExpression,
    Expression,
    FilterExpressionLiteral,
    FilterQuery,
    LogicalExpression,
    StringLiteral,
)
from jsonpath_rfc9535.segments import JSONPathSegment
from jsonpath_rfc9535.selectors import FilterSelector, JSONPathSelector, NameSelector

_PLAIN = re.compile(r"[ !#-.0-\[\]-~]*")
r"""Printable ASCII without `"`, `/` and `\`: the only other way to write these characters is `\u0020` to `\u007e`."""


def needle(query: JSONPathQuery) -> re.Pattern[bytes] | None:
    """A pattern that occurs in every JSON text in which the query selects something; None if nothing is sure to."""
    try:
        need = _by_query(query)
    except RecursionError:
        return None
    if need is None:
        return None
    escape = rb"\\u00[2-7]" if all(map(_PLAIN.fullmatch, need.strings)) else rb"\\"
    # Without the quote in front, as a search that looks up at every quote of a JSON text takes twice the time.
    spelled = [re.escape(string.encode("utf-8", "surrogatepass")) + b'"' for string in sorted(need.strings)]
    return re.compile(b"|".join([*spelled, escape]))


class _Need(NamedTuple):
    """Every value in which something is selected has one of these strings in it, as a name or as a value."""

    strings: frozenset[str]
    compared: bool
    """Whether they are values, which are rarer than names."""


def _by_query(query: JSONPathQuery) -> _Need | None:
    return _all_of(map(_by_segment, query.segments))


def _by_segment(segment: JSONPathSegment) -> _Need | None:
    return _one_of(map(_by_selector, segment.selectors))


def _by_selector(selector: JSONPathSelector) -> _Need | None:
    match selector:
        case NameSelector(name=name):
            return _Need(frozenset([name]), compared=False)
        case FilterSelector(expression=condition):
            return _by_condition(condition.expression)
    return None


def _by_condition(condition: Expression) -> _Need | None:
    match condition:
        case LogicalExpression(left=left, operator="&&", right=right):
            return _all_of(map(_by_condition, (left, right)))
        case LogicalExpression(left=left, operator="||", right=right):
            return _one_of(map(_by_condition, (left, right)))
        case FilterQuery(query=query):
            return _by_query(query)
        case ComparisonExpression(
            left=FilterQuery(query=query), operator=operator, right=FilterExpressionLiteral() as literal
        ):
            return _by_comparison(query, operator, literal)
        case ComparisonExpression(
            left=FilterExpressionLiteral() as literal, operator=operator, right=FilterQuery(query=query)
        ):
            return _by_comparison(query, operator, literal)
    return None  # a negation, a function, or a comparison of two queries, which is true where both select nothing


def _by_comparison(query: JSONPathQuery, operator: str, literal: Expression) -> _Need | None:
    if operator == "!=":
        return None  # true where the query selects nothing
    if operator == "==" and isinstance(literal, StringLiteral):
        return _Need(frozenset([literal.value]), compared=True)
    return _by_query(query)


def _all_of(needs: Iterable[_Need | None]) -> _Need | None:
    """All of them hold: the one that is likely to be in the fewest records."""
    known = [need for need in needs if need is not None]
    return max(known, key=lambda need: (need.compared, -len(need.strings), min(map(len, need.strings))), default=None)


def _one_of(needs: Iterable[_Need | None]) -> _Need | None:
    """One of them holds, it is not known which."""
    known: list[_Need] = []
    for need in needs:
        if need is None:
            return None
        known.append(need)
    strings = frozenset().union(*(need.strings for need in known))
    return _Need(strings, all(need.compared for need in known)) if known else None
