"""RocketMQ's SQL92 as a tree: nodes, and what is refused before anything is filtered.

    condition   := conjunction (OR conjunction)*
    conjunction := equality (AND equality)*
    equality    := comparison ( = comparison | <> comparison | IS [NOT] NULL )*
    comparison  := unary ( > unary | >= unary | < unary | <= unary
                         | [NOT] BETWEEN unary AND unary | [NOT] IN ( 'text', … )
                         | [NOT] CONTAINS 'text' | [NOT] STARTSWITH 'text' | [NOT] ENDSWITH 'text'
                         | [NOT] LIKE 'pattern' [ESCAPE 'c'] )*
    unary       := + unary | - unary | NOT unary | 'text' | number | TRUE | FALSE | NULL | property | path
                 | ( condition )

Keywords in any case, properties as they are written. So NOT binds tighter than `=`: `NOT vip = FALSE` is
`(NOT vip) = FALSE`. LIKE is ours; RocketMQ has no such thing, so a property may be called LIKE or ESCAPE. Neither does
RocketMQ look at what follows a whole expression, which here is an error. Paths, fields of a JSON value, are ours, too
(sql_paths.py); they know their types, so texts have an order there, and IN takes numbers and truth values as well.
(org.apache.rocketmq.filter.parser.SelectorParser, 5.3.3.)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Decimal
from types import UnionType
from typing import TypeVar, cast

from halfmoon.plugin import FilterSyntaxError
from halfmoon.plugins.filter.expression import check_length
from halfmoon.plugins.filter.json_fields import Step
from halfmoon.plugins.filter.sql_paths import MAX_PATHS
from halfmoon.plugins.filter.sql_tokens import Token, tokens, unquoted, word_of
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
    Order,
    Path,
    Property,
    Truth,
)

MAX_NESTING = 40
"""Parentheses, NOTs and signs within one another."""

MAX_CHAINED = 40
"""Comparisons of a comparison (`a = b = c` has one), all in all."""

TEXT_OPERATORS = ("BETWEEN", "IN", "CONTAINS", "STARTSWITH", "ENDSWITH", "LIKE")
"""NOT may stand before these."""

T = TypeVar("T")


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
        self._paths: dict[tuple[Step, ...], Path] = {}

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
        return self._take() if word_of(self._peek) in texts else None

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
        if isinstance(left, Property | Path | Constant | Negative):
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
            negated = word_of(self._peek) == "NOT" and word_of(self._tokens[self._next + 1]) in TEXT_OPERATORS
            if negated:
                self._take()
            operator = self._took(">", ">=", "<", "<=", *TEXT_OPERATORS)
            if operator is None:
                return left
            self._chain(left, operator)
            left = self._compared(operator, negated, left, first)

    def _compared(self, operator: Token, negated: bool, left: Node, first: Token) -> Node:
        symbol = word_of(operator)
        if symbol in (">", ">=", "<", "<="):
            second = self._peek
            right = self._unary()
            self._check_ordered(((left, first), (right, second)))
            return Compare(cast("Order", symbol), left, right)
        if symbol == "BETWEEN":
            return self._between(negated, left, first)
        if symbol in ("CONTAINS", "STARTSWITH", "ENDSWITH"):
            return Contains(symbol, left, self._text(), negated)
        if not isinstance(left, Property | Path):
            raise self._error(f"{symbol} looks at a property", first)
        if symbol == "IN":
            if isinstance(left, Path):
                return Among(left, self._listed(self._choice), negated)
            return In(left, frozenset(self._listed(self._text)), negated)
        return Like(left, self._text(), self._escape(), negated)

    def _between(self, negated: bool, left: Node, first: Token) -> Node:
        low_at = self._peek
        low = self._unary()
        self._expect("AND")
        high_at = self._peek
        high = self._unary()
        self._check_ordered(((left, first), (low, low_at), (high, high_at)))
        if negated:
            return Or((Compare("<", left, low), Compare(">", left, high)))
        if isinstance(low, Constant) and isinstance(high, Constant):
            if isinstance(low.value, str) is not isinstance(high.value, str):
                raise self._error("BETWEEN takes two numbers or two texts", low_at)
            if high.value < low.value:  # type: ignore[operator]
                raise self._error(
                    f"BETWEEN {low.value} AND {high.value}: the second is to be as large as the first", low_at
                )
        return And((Compare(">=", left, low), Compare("<=", left, high)))

    def _listed(self, one: Callable[[], T]) -> tuple[T, ...]:
        self._expect("(")
        found = [one()]
        while self._took(","):
            found.append(one())
        if self._took(")") is None:
            raise self._error("expected , or )")
        return tuple(found)

    def _choice(self) -> Constant:
        """What a field may be among."""
        at = self._peek
        sign = self._took("+", "-")
        choice = self._primary() if self._peek.kind in ("text", "int", "float", "keyword") else None
        if not isinstance(choice, Constant) or choice.value is None:
            raise self._error("expected a text, a number, TRUE or FALSE", at)
        if sign is None:
            return choice
        if isinstance(choice.value, str | bool):
            raise self._error("only a number has a sign", at)
        return _minus(choice) if sign.text == "-" else choice

    def _text(self) -> str:
        if self._peek.kind != "text":
            raise self._error("expected a text in single quotes")
        return unquoted(self._take())

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
        if token.kind == "path":
            return self._path(token)
        if token.kind == "text":
            return Constant(unquoted(token))
        if token.kind == "int":
            return self._whole_number(token)
        if token.kind == "float":
            return self._floating(token)
        if token.kind == "keyword" and token.text in ("TRUE", "FALSE", "NULL"):
            return Constant({"TRUE": True, "FALSE": False, "NULL": None}[token.text])
        raise self._error(f"expected a property, a text, a number, NOT or (, found {token}", token)

    def _path(self, token: Token) -> Path:
        known = self._paths.get(token.steps)
        if known is not None:
            return known
        if len(self._paths) == MAX_PATHS:
            raise self._error(f"more than {MAX_PATHS} fields of the JSON value", token)
        self._paths[token.steps] = made = Path(token.steps, len(self._paths))
        return made

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
        return Constant(number, Decimal(token.text))

    # -- types ---------------------------------------------------------------------------------------------------------

    def _condition(self, node: Node, at: Token) -> Node:
        if isinstance(node, Property):
            return Cast(node)
        if isinstance(node, Path):
            return Truth(node)
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

    def _check_ordered(self, sides: Sequence[tuple[Node, Token]]) -> None:
        """Numbers have an order, and texts that are compared with fields."""
        refused = bool if any(isinstance(node, Path) for node, _ in sides) else str | bool
        for node, at in sides:
            self._check_order(node, at, refused)

    def _check_order(self, node: Node, at: Token, refused: type | UnionType) -> None:
        if isinstance(node, Constant) and (isinstance(node.value, refused) or node.value is None):
            texts = "" if refused is not bool else "a text, "
            kinds = "numbers" if not texts else "numbers and texts"
            raise self._error(f"only {kinds} have an order; expected {texts}a number or a property", at)
        if not isinstance(node, Constant) and _is_condition(node):
            raise self._error("a condition has no order; expected a number or a property", at)


def _minus(number: Constant) -> Constant:
    assert isinstance(number.value, int | float)
    return Constant(-number.value, None if number.exact is None else number.exact.copy_negate())


def _is_condition(node: Node) -> bool:
    if isinstance(node, Constant):
        return node.value is None or isinstance(node.value, bool)
    return not isinstance(node, Property | Path | Negative)
