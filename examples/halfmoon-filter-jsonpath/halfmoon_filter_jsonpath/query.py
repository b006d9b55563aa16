"""From an expression to a query that may be asked of every record.

A query runs in the broker's event loop, so what it can cost is settled before it runs: its time grows with the size of
the value times the length of the expression, and with `..` also with the depth of the value. RFC 9535 has more than
that, and warns of it (section 4.1). Refused are:

- `match()` and `search()`: their regular expressions backtrack, and `(a|aa)+` takes twice as long with each `a`;
- a second `..`: the first visits every node, the second everything below every node;
- selectors in one pair of brackets that may select a node twice: `[*, *]` thirty times over is 2³⁰ nodes;
- queries inside of filters that begin with `$` and select more than one node: every node would be asked about all.

What jsonpath-rfc9535 1.0 gets wrong is refused too, rather than answered wrongly: `$` in a filter within a filter (it
takes the value that is filtered for the root), and `@` alone as a condition (it takes 0, false and "" for absent).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

from jsonpath_rfc9535 import JSONPathEnvironment, JSONPathError
from jsonpath_rfc9535 import JSONPathQuery as Query
from jsonpath_rfc9535.filter_expressions import (
    ComparisonExpression,
    Expression,
    FunctionExtension,
    LogicalExpression,
    PrefixExpression,
    RelativeFilterQuery,
    RootFilterQuery,
)
from jsonpath_rfc9535.segments import JSONPathRecursiveDescentSegment
from jsonpath_rfc9535.selectors import FilterSelector, IndexSelector, JSONPathSelector, NameSelector
from jsonpath_rfc9535.tokens import Token

from halfmoon.plugin import FilterSyntaxError

__all__ = ["Query", "parse"]


class _Environment(JSONPathEnvironment):
    """RFC 9535 without the functions that take regular expressions."""

    def setup_function_extensions(self) -> None:
        super().setup_function_extensions()
        del self.function_extensions["match"]
        del self.function_extensions["search"]


_ENVIRONMENT = _Environment()


def parse(expression: str, max_length: int) -> Query:
    """Raises FilterSyntaxError, also for a query that could cost too much. `max_length`: in characters."""
    if len(expression) > max_length:
        problem = f"the expression has {len(expression):,} characters, the most are {max_length:,}"
        raise FilterSyntaxError(problem, max_length, expression)
    try:
        query = _ENVIRONMENT.compile(expression)
        _Check(expression).query(query, filters=0)
    except JSONPathError as error:
        raise FilterSyntaxError(str(error.args[0]), _position(error, expression), expression) from None
    except RecursionError:
        raise FilterSyntaxError("the expression is nested too deeply", 0, expression) from None
    except (OverflowError, UnicodeError):
        raise FilterSyntaxError("it holds a number that is too large, or half a character", 0, expression) from None
    return query


def _position(error: JSONPathError, expression: str) -> int:
    """Where the error is, in characters from 0; the start where the library does not say."""
    token = next((each for each in (error.token, *error.args) if isinstance(each, Token)), None)
    return 0 if token is None else max(0, min(token.index, len(expression)))


class _Check:
    """Walks over a parsed query and refuses what the head of this module lists."""

    def __init__(self, expression: str) -> None:
        self._expression = expression
        self._descents = 0

    def query(self, query: Query, filters: int) -> None:
        """`filters`: how many filters it stands in."""
        for segment in query.segments:
            if isinstance(segment, JSONPathRecursiveDescentSegment):
                self._descents += 1
                if self._descents > 1:
                    self._refuse("only one `..` is possible in an expression", segment.token)
            if not _are_distinct(segment.selectors):
                problem = "only names and indexes from 0 on can stand side by side, each of them once"
                self._refuse(problem, segment.selectors[1].token)
            for selector in segment.selectors:
                if isinstance(selector, FilterSelector):
                    self._condition(selector.expression.expression, filters + 1)

    def _condition(self, condition: Expression, filters: int) -> None:
        match condition:
            case LogicalExpression(left=left, right=right):
                self._condition(left, filters)
                self._condition(right, filters)
            case PrefixExpression(right=right):
                self._condition(right, filters)
            case RelativeFilterQuery(query=query) if query.empty():
                self._refuse("`@` alone is true of everything: use `*`, or compare it", condition.token)
            case _:
                self._operand(condition, filters)

    def _operand(self, operand: Expression, filters: int) -> None:
        match operand:
            case ComparisonExpression(left=left, right=right):
                self._operand(left, filters)
                self._operand(right, filters)
            case FunctionExtension(args=arguments):
                for argument in arguments:
                    self._operand(argument, filters)
            case RelativeFilterQuery(query=query):
                self.query(query, filters)
            case RootFilterQuery(query=query):
                if filters > 1:
                    self._refuse("`$` cannot stand in a filter within a filter", operand.token)
                if not query.singular_query():
                    self._refuse("only names and indexes can follow a `$` in a filter", operand.token)

    def _refuse(self, problem: str, token: Token) -> NoReturn:
        raise FilterSyntaxError(problem, token.index, self._expression)


def _are_distinct(selectors: Sequence[JSONPathSelector]) -> bool:
    """Whether no two of them can select the same node."""
    if len(selectors) == 1:
        return True
    keys: set[str | int] = set()
    for selector in selectors:
        match selector:
            case NameSelector(name=name):
                keys.add(name)
            case IndexSelector(index=index) if index >= 0:
                keys.add(index)
            case _:
                return False
    return len(keys) == len(selectors)
