"""The nodes of an SQL92 condition, as sql_grammar.py makes them and sql_evaluation.py works them out."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

Scalar = str | int | float | bool | None


class Long(int):
    """A whole number that Java keeps in 64 bits: properties compared with it are read as such."""


class Constant(Struct, frozen=True):
    value: Scalar


class Property(Struct, frozen=True):
    name: str


class Negative(Struct, frozen=True):
    """−operand; null unless the operand is a number."""

    operand: Node


class Cast(Struct, frozen=True):
    """A property where a condition stands. Properties are texts, so it is never true."""

    operand: Property


class Not(Struct, frozen=True):
    operand: Node


class And(Struct, frozen=True):
    operands: tuple[Node, ...]


class Or(Struct, frozen=True):
    operands: tuple[Node, ...]


class Equal(Struct, frozen=True):
    left: Node
    right: Node


class IsNull(Struct, frozen=True):
    operand: Node


Order = Literal[">", ">=", "<", "<="]


class Compare(Struct, frozen=True):
    symbol: Order
    left: Node
    right: Node


class In(Struct, frozen=True):
    operand: Property
    texts: frozenset[str]
    negated: bool


class Contains(Struct, frozen=True):
    """CONTAINS, STARTSWITH or ENDSWITH; false, negated or not, where the operand is no text, or `text` is empty."""

    keyword: str
    operand: Node
    text: str
    negated: bool


class Like(Struct, frozen=True):
    operand: Property
    pattern: str
    escape: str
    negated: bool


Node = Constant | Property | Negative | Cast | Not | And | Or | Equal | IsNull | Compare | In | Contains | Like
