"""A compiled SQL92 condition: from the tree (sql_tree.py) to what is asked of each record (sql_evaluation.py)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from halfmoon.plugins.filter.header_needle import Header, needle
from halfmoon.plugins.filter.sql_evaluation import NoMatchError, evaluator
from halfmoon.plugins.filter.sql_tree import (
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
    Property,
)


class SqlFilter:
    """Matches the records for which the condition is true; neither those for which it is false, nor the unknown."""

    def __init__(self, tree: Node) -> None:
        self._evaluate = evaluator(tree)
        needed = needed_headers(tree)
        self.needle: re.Pattern[bytes] | None = None if needed is None else needle(needed)

    def match(self, record: Any) -> bool:
        try:
            return self._evaluate(dict(record.headers)) is True
        except NoMatchError:
            return False


def needed_headers(node: Node) -> Sequence[Header] | None:
    """A record for which the condition is true has one of these headers. None: that cannot be told."""
    match node:
        case And(operands):
            return min(filter(None, map(needed_headers, operands)), key=_cost, default=None)
        case Or(operands):
            sides = [needed_headers(operand) for operand in operands]
            return None if None in sides else [header for side in sides if side for header in side]
        case Not(IsNull(Property(name))) | Not(Equal(Property(name), Constant())):
            return [(name, None)]
        case Equal(Property(name), Constant(str() as text)):
            return [(name, text.encode("utf-8", "surrogatepass"))]
        case Equal(Property(name), Constant()) | Equal(Constant(), Property(name)):
            return [(name, None)]
        case In(Property(name), texts, negated=False):
            return [(name, text.encode("utf-8", "surrogatepass")) for text in texts]
        case In(Property(name)) | Like(Property(name)) | Contains(operand=Property(name)):
            return [(name, None)]
        case Compare(left=Property(name)) | Compare(right=Property(name)):
            return [(name, None)]
    return None


def _cost(headers: Sequence[Header]) -> tuple[bool, int]:
    """Less where fewer records have one of them, as far as can be told: a value is rarer than a name."""
    return any(value is None for _, value in headers), len(headers)
