"""Subscriptions as filters: tags, and whatever languages plugins know (SQL92)."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import NamedTuple

from halfmoon.adapters.rocketmq.errors import Refused
from halfmoon.remoting.codes import Code
from halfmoon.services.common.filters import FilterCompiler, FilterSyntaxError, MessageFilter

TAG = "TAG"
_KEPT_CHARACTERS = 128 << 10
"""Of expressions. A compiled one takes up to a hundred times as much."""
COMPILE_COST = 8
"""What a character of an expression counts for in a turn (connection.py): 16 KiB of SQL92 take 40 ms to compile."""


class Filter(NamedTuple):
    """A subscription's filter. Equal expressions are one filter."""

    kind: str
    expression: str
    matcher: MessageFilter


class Filters:
    """Compiles each expression once, as long as it is in use."""

    def __init__(self, languages: Mapping[str, FilterCompiler], spend: Callable[[int], None]) -> None:
        """`languages`: filter language → its compiler. `spend(cost)` is told what compiling counts for in a turn."""
        self._languages = languages
        self._spend = spend
        self._characters = 0
        self._compiled: OrderedDict[tuple[str, str], Filter] = OrderedDict()

    def get(self, kind: str, expression: str) -> Filter | None:
        """None lets everything through. Raises Refused(SUBSCRIPTION_PARSE_FAILED) for a bad expression, SYSTEM_ERROR
        for a language that nobody knows."""
        kind = kind or TAG
        if kind == TAG and expression.strip() in ("", "*"):
            return None
        known = self._compiled.get((kind, expression))
        if known is not None:
            self._compiled.move_to_end((kind, expression))
            return known
        compiler = self._languages.get(kind.lower())
        if compiler is None:
            raise Refused(Code.SYSTEM_ERROR, f"the broker does not support consumers that filter by {kind[:40]}")
        self._spend(COMPILE_COST * len(expression))
        try:
            made = Filter(kind, expression, compiler(expression))
        except FilterSyntaxError as error:
            raise Refused(Code.SUBSCRIPTION_PARSE_FAILED, f"the expression cannot be compiled: {error}") from None
        self._compiled[kind, expression] = made
        self._characters += len(expression)
        while self._characters > _KEPT_CHARACTERS and len(self._compiled) > 1:
            (_, old), _ = self._compiled.popitem(last=False)
            self._characters -= len(old)
        return made
