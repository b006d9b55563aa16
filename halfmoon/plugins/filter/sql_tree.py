"""The nodes of an SQL92 condition, as sql_grammar.py makes them and sql_evaluation.py works them out."""

from __future__ import annotations

from decimal import Decimal
from typing import Literal

from msgspec import Struct

from halfmoon.plugins.filter.json_fields import Step

Scalar = str | int | float | bool | None


class Long(int):
    """A whole number that Java keeps in 64 bits: properties compared with it are read as such."""


class Constant(Struct, frozen=True):
    value: Scalar
    exact: Decimal | None = None
    """A floating-point number as it is written, for fields of JSON values; headers are compared with doubles."""


class Property(Struct, frozen=True):
    name: str


class Path(Struct, frozen=True):
    """A field of the record's JSON value."""

    steps: tuple[Step, ...]
    slot: int
    """Which one it is of the fields that the condition names."""


class Truth(Struct, frozen=True):
    """A field where a condition stands: true if it is JSON's true, and unknown unless it is that or false."""

    operand: Path


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


class Among(Struct, frozen=True):
    """IN of a field, which may be any scalar."""

    operand: Path
    choices: tuple[Constant, ...]
    negated: bool


class Contains(Struct, frozen=True):
    """CONTAINS, STARTSWITH or ENDSWITH; false, negated or not, where the operand is no text, or `text` is empty. Of a
    field that is no text it is unknown."""

    keyword: str
    operand: Node
    text: str
    negated: bool


class Like(Struct, frozen=True):
    operand: Property | Path
    pattern: str
    escape: str
    negated: bool


Node = (
    Constant | Property | Path | Negative | Cast | Truth | Not | And | Or | Equal | IsNull | Compare | In | Among
    | Contains | Like
)  # fmt: skip


def paths_of(node: Node) -> dict[int, Path]:
    """The fields that a condition names, by their slots."""
    found: dict[int, Path] = {}
    _add_paths(node, found)
    return found


def _add_paths(part: object, found: dict[int, Path]) -> None:
    if isinstance(part, Path):
        found[part.slot] = part
    elif isinstance(part, Struct):
        for field in part.__struct_fields__:
            _add_paths(getattr(part, field), found)
    elif isinstance(part, tuple):
        for each in part:
            _add_paths(each, found)
