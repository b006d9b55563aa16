"""RocketMQ's SQL92 as a tree: tokens, nodes, and what is refused before anything is filtered.

    condition   := conjunction (OR conjunction)*
    conjunction := equality (AND equality)*
    equality    := comparison ( = comparison | <> comparison | IS [NOT] NULL )*
    comparison  := unary ( > unary | >= unary | < unary | <= unary
                         | [NOT] BETWEEN unary AND unary | [NOT] IN ( 'text', … )
                         | [NOT] CONTAINS 'text' | [NOT] STARTSWITH 'text' | [NOT] ENDSWITH 'text'
                         | [NOT] LIKE 'pattern' [ESCAPE 'c'] )*
    unary       := + unary | - unary | NOT unary | 'text' | number | TRUE | FALSE | NULL | property | ( condition )

Keywords in any case, properties as they are written. So NOT binds tighter than `=`: `NOT vip = FALSE` is
`(NOT vip) = FALSE`. LIKE is ours; RocketMQ has no such thing, so a property may be called LIKE or ESCAPE. Neither does
RocketMQ look at what follows a whole expression, which here is an error.
(org.apache.rocketmq.filter.parser.SelectorParser, 5.3.3.)
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Literal, NamedTuple, cast

from halfmoon.plugin import FilterSyntaxError
from halfmoon.plugins.filter.expression import check_length
from halfmoon.plugins.filter.sql_tree import (
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
    Order,
    Property,
)

MAX_NESTING = 40
"""Parentheses, NOTs and signs within one another."""

MAX_CHAINED = 40
"""Comparisons of a comparison (`a = b = c` has one), all in all."""

Kind = Literal["text", "int", "float", "name", "keyword", "symbol", "end"]


class Token(NamedTuple):
    kind: Kind
    text: str
    """Keywords in capitals, all else as written."""
    at: int
    """Characters before it."""

    def __str__(self) -> str:
        return "the end" if self.kind == "end" else self.text if self.kind == "text" else f"'{self.text}'"


KEYWORDS = frozenset(
    ["AND", "BETWEEN", "CONTAINS", "ENDSWITH", "FALSE", "IN", "IS", "NOT", "NULL", "OR", "STARTSWITH", "TRUE"]
)
OUR_KEYWORDS = frozenset(["ESCAPE", "LIKE"])
"""Only where no property can stand."""

TEXT_OPERATORS = ("BETWEEN", "IN", "CONTAINS", "STARTSWITH", "ENDSWITH", "LIKE")
"""NOT may stand before these."""

_TOKEN = re.compile(
    r"""(?P<space>[\ \t\n\r\f]+|--[^\n\r]*|/\*.*?\*/)
      | (?P<float>[0-9]+\.[0-9]*(?:[eE][+-]?[0-9]+)?|\.[0-9]+(?:[eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+)
      | (?P<int>0|[1-9][0-9]*[lL]?)
      | (?P<text>'(?:[^']|'')*')
      | (?P<name>[A-Za-z_$][A-Za-z0-9_$]*)
      | (?P<symbol><>|<=|>=|[=<>(),+-])""",
    re.VERBOSE | re.DOTALL,
)

_HINTS = {
    "'": "a text without its closing '",
    "/": "an operator or a comment that is not closed; there is no arithmetic",
    '"': "a text is written in single quotes",
    "!": "'not equal' is written <>",
    "*": "there is no arithmetic",
    "|": "'or' is written OR",
    "&": "'and' is written AND",
}
"""What somebody may have meant who wrote this character."""


def tokens(expression: str) -> list[Token]:
    """Raises FilterSyntaxError at the first character that begins none."""
    found = []
    at = 0
    while at < len(expression):
        match = _TOKEN.match(expression, at)
        if match is None:
            character = expression[at]
            raise FilterSyntaxError(_HINTS.get(character, f"{character!r} means nothing here"), at, expression)
        kind, text = match.lastgroup, match.group()
        if kind == "name" and text.upper() in KEYWORDS:
            kind, text = "keyword", text.upper()
        if kind != "space":
            found.append(Token(cast("Kind", kind), text, at))
        at = match.end()
    found.append(Token("end", "", at))
    return found


def parse(expression: str) -> Node:
    """The tree of a condition. Raises FilterSyntaxError."""
    check_length(expression)
    return _Parser(expression).whole()


class _Parser:
    """One method for each line of the grammar."""

    def __init__(self, expression: str) -> None:
        self._expression = expression
        self._tokens = tokens(expression)
        self._next = 0
        self._depth = 0
        self._chained = 0

    def whole(self) -> Node:
        tree = self._condition(self._disjunction(), self._tokens[0])
        if self._peek.kind != "end":
            raise self._error("expected AND, OR, a comparison or the end")
        return tree

    # -- tokens --------------------------------------------------------------------------------------------------------

    @property
    def _peek(self) -> Token:
        return self._tokens[self._next]

    def _take(self) -> Token:
        token = self._tokens[self._next]
        self._next += token.kind != "end"
        return token

    def _took(self, *texts: str) -> Token | None:
        """The next token, if it is one of these keywords or symbols."""
        return self._take() if _word(self._peek) in texts else None

    def _expect(self, text: str) -> Token:
        token = self._took(text)
        if token is None:
            raise self._error(f"expected {text}")
        return token

    def _error(self, message: str, at: Token | None = None) -> FilterSyntaxError:
        if at is None:
            at = self._peek
            message = f"{message}, found {at}"
        return FilterSyntaxError(message, at.at, self._expression)

    def _deeper(self, at: Token) -> None:
        self._depth += 1
        if self._depth > MAX_NESTING:
            raise self._error(f"more than {MAX_NESTING} parentheses, NOTs and signs within one another", at)

    def _chain(self, left: Node, at: Token) -> None:
        """`left` is about to be compared; every comparison within it makes evaluating deeper."""
        if isinstance(left, Property | Constant | Negative):
            return
        self._chained += 1
        if self._chained > MAX_CHAINED:
            raise self._error(f"more than {MAX_CHAINED} comparisons of comparisons", at)

    # -- the grammar ---------------------------------------------------------------------------------------------------

    def _disjunction(self) -> Node:
        return self._joined("OR", self._conjunction, Or)

    def _conjunction(self) -> Node:
        return self._joined("AND", self._equality, And)

    def _joined(self, keyword: str, part: Callable[[], Node], join: Callable[[tuple[Node, ...]], Node]) -> Node:
        first = self._peek
        left = part()
        if self._peek.kind != "keyword" or self._peek.text != keyword:
            return left
        operands = [self._condition(left, first)]
        while self._took(keyword):
            first = self._peek
            operands.append(self._condition(part(), first))
        return join(tuple(operands))

    def _equality(self) -> Node:
        first = self._peek
        left = self._comparison()
        while (operator := self._took("=", "<>", "IS")) is not None:
            self._chain(left, operator)
            if operator.text == "IS":
                negated = self._took("NOT")
                self._expect("NULL")
                left = IsNull(left)
                left = Not(left) if negated else left
                continue
            second = self._peek
            right = self._comparison()
            self._check_equal(left, first, right, second)
            left = Equal(left, right)
            left = Not(left) if operator.text == "<>" else left
        return left

    def _comparison(self) -> Node:
        first = self._peek
        left = self._unary()
        while True:
            negated = _word(self._peek) == "NOT" and _word(self._tokens[self._next + 1]) in TEXT_OPERATORS
            if negated:
                self._take()
            operator = self._took(">", ">=", "<", "<=", *TEXT_OPERATORS)
            if operator is None:
                return left
            self._chain(left, operator)
            left = self._compared(operator, negated, left, first)

    def _compared(self, operator: Token, negated: bool, left: Node, first: Token) -> Node:
        symbol = _word(operator)
        if symbol in (">", ">=", "<", "<="):
            second = self._peek
            right = self._unary()
            self._check_number(left, first)
            self._check_number(right, second)
            return Compare(cast("Order", symbol), left, right)
        if symbol == "BETWEEN":
            return self._between(negated, left, first)
        if symbol in ("CONTAINS", "STARTSWITH", "ENDSWITH"):
            return Contains(symbol, left, self._text(), negated)
        if not isinstance(left, Property):
            raise self._error(f"{symbol} looks at a property", first)
        if symbol == "IN":
            return In(left, self._texts(), negated)
        return Like(left, self._text(), self._escape(), negated)

    def _between(self, negated: bool, left: Node, first: Token) -> Node:
        low_at = self._peek
        low = self._unary()
        self._expect("AND")
        high_at = self._peek
        high = self._unary()
        for node, at in ((left, first), (low, low_at), (high, high_at)):
            self._check_number(node, at)
        if negated:
            return Or((Compare("<", left, low), Compare(">", left, high)))
        if isinstance(low, Constant) and isinstance(high, Constant) and high.value < low.value:  # type: ignore[operator]
            raise self._error(
                f"BETWEEN {low.value} AND {high.value}: the second is to be as large as the first", low_at
            )
        return And((Compare(">=", left, low), Compare("<=", left, high)))

    def _texts(self) -> frozenset[str]:
        self._expect("(")
        found = [self._text()]
        while self._took(","):
            found.append(self._text())
        if self._took(")") is None:
            raise self._error("expected , or )")
        return frozenset(found)

    def _text(self) -> str:
        if self._peek.kind != "text":
            raise self._error("expected a text in single quotes")
        return _unquoted(self._take())

    def _escape(self) -> str:
        if self._took("ESCAPE") is None:
            return ""
        at = self._peek
        escape = self._text()
        if len(escape) != 1 or escape in "%_":
            raise self._error("ESCAPE takes one character, and neither % nor _", at)
        return escape

    def _unary(self) -> Node:
        operator = self._took("+", "-", "NOT")
        if operator is None:
            return self._primary()
        self._deeper(operator)
        first = self._peek
        operand = self._unary()
        self._depth -= 1
        if operator.text == "NOT":
            return Not(self._condition(operand, first))
        return Negative(operand) if operator.text == "-" else operand

    def _primary(self) -> Node:
        token = self._take()
        if token.kind == "symbol" and token.text == "(":
            self._deeper(token)
            inner = self._disjunction()
            if self._took(")") is None:
                raise self._error("expected AND, OR, a comparison or )")
            self._depth -= 1
            return inner
        if token.kind == "name":
            return Property(token.text)
        if token.kind == "text":
            return Constant(_unquoted(token))
        if token.kind == "int":
            return self._whole_number(token)
        if token.kind == "float":
            return self._floating(token)
        if token.kind == "keyword" and token.text in ("TRUE", "FALSE", "NULL"):
            return Constant({"TRUE": True, "FALSE": False, "NULL": None}[token.text])
        raise self._error(f"expected a property, a text, a number, NOT or (, found {token}", token)

    def _whole_number(self, token: Token) -> Constant:
        digits = token.text.rstrip("lL")
        if len(digits) > 19 or int(digits) >= 1 << 63:
            raise self._error(f"{token.text} does not fit into 64 bits", token)
        number = int(digits)
        return Constant(number if number < 1 << 31 else Long(number))

    def _floating(self, token: Token) -> Constant:
        number = float(token.text)
        if number == float("inf"):
            raise self._error(f"{token.text} is too large", token)
        if not number:
            # RocketMQ means to refuse what is too small, and refuses this too (ConstantExpression.createFloat).
            raise self._error(f"{token.text} is too small; zero is written 0", token)
        return Constant(number)

    # -- types ---------------------------------------------------------------------------------------------------------

    def _condition(self, node: Node, at: Token) -> Node:
        if isinstance(node, Property):
            return Cast(node)
        if not _is_condition(node):
            raise self._error("expected a condition, found a value", at)
        return node

    def _check_equal(self, left: Node, left_at: Token, right: Node, right_at: Token) -> None:
        for node, at in ((left, left_at), (right, right_at)):
            if isinstance(node, Constant) and node.value is None:
                raise self._error("nothing equals NULL; write IS NULL or IS NOT NULL", at)
        constants = isinstance(left, Constant) and isinstance(right, Constant)
        if constants and _is_condition(left) and not _is_condition(right):
            raise self._error("TRUE and FALSE are compared with properties, conditions, or each other", right_at)

    def _check_number(self, node: Node, at: Token) -> None:
        if isinstance(node, Constant) and (isinstance(node.value, str | bool) or node.value is None):
            raise self._error("only numbers have an order; expected a number or a property", at)
        if not isinstance(node, Constant) and _is_condition(node):
            raise self._error("a condition has no order; expected a number or a property", at)


def _word(token: Token) -> str:
    """A keyword or symbol, and what would be one here if it were no name; "" for all else."""
    if token.kind == "name":
        return token.text.upper() if token.text.upper() in OUR_KEYWORDS else ""
    return token.text if token.kind in ("keyword", "symbol") else ""


def _is_condition(node: Node) -> bool:
    if isinstance(node, Constant):
        return node.value is None or isinstance(node.value, bool)
    return not isinstance(node, Property | Negative)


def _unquoted(token: Token) -> str:
    return token.text[1:-1].replace("''", "'")
