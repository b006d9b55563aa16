"""The filter language `path`: `$.customer.address.country == "DE"`, or `$.items[0]` for values that have it.

A small part of JSONPath, of names and indexes; the value of a message is JSON.
"""

from __future__ import annotations

import json
import re
from typing import Any

from halfmoon.plugin import FilterSyntaxError, PluginContext, Record, hookimpl

api_version = 1

LONGEST = 1_000
"""Characters of an expression."""
_STEP = re.compile(r"\.([A-Za-z_][A-Za-z0-9_-]*)|\[([0-9]{1,6})\]")
_IS = re.compile(r"\s*==\s*")
_ANYTHING = object()


class PathFilter:
    needle = None  # JSON writes a name in more than one way ("\u0061"), so no bytes occur in every match

    def __init__(self, expression: str) -> None:
        if len(expression) > LONGEST:
            raise FilterSyntaxError(f"an expression has at most {LONGEST} characters", LONGEST, expression)
        if not expression.startswith("$"):
            raise FilterSyntaxError("a path begins with $", 0, expression)
        self._steps: list[str | int] = []
        at = 1
        while step := _STEP.match(expression, at):
            name, index = step.groups()
            self._steps.append(name if index is None else int(index))
            at = step.end()
        self._wanted: Any = _ANYTHING
        if at == len(expression):
            return
        compared = _IS.match(expression, at)
        if compared is None:
            raise FilterSyntaxError("expected .name, [index] or ==", at, expression)
        try:
            self._wanted = json.loads(expression[compared.end() :])
        except ValueError:
            raise FilterSyntaxError("expected a JSON value", compared.end(), expression) from None

    def match(self, record: Record) -> bool:
        try:
            found = json.loads(record.value or b"")
            for step in self._steps:
                if isinstance(found, dict) is isinstance(step, int):
                    return False
                found = found[step]
        except (ValueError, LookupError, TypeError, RecursionError):
            return False
        if self._wanted is _ANYTHING:
            return True
        # In Python True == 1, in JSON it is not.
        return isinstance(found, bool) is isinstance(self._wanted, bool) and bool(found == self._wanted)


@hookimpl
def halfmoon_filters(ctx: PluginContext) -> dict[str, type[PathFilter]]:
    return {"path": PathFilter}
