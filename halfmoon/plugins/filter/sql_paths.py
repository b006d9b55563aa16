"""Fields of a JSON value as SQL92 expressions name them.

    path  := value step step*
    step  := . name | . "name" | [ index ] | [ 'name' ]

`value` alone is a header of that name. A name without quotes has letters, digits, _ and $, and begins with none of the
digits; a quote within quotes is written twice. Nothing stands between the steps.
"""

from __future__ import annotations

import re

from halfmoon.plugin import FilterSyntaxError
from halfmoon.plugins.filter.json_fields import Step

ROOT = "value"
"""As names of headers, it is case-sensitive."""

MAX_PATHS = 64
"""Fields that an expression may name."""
MAX_STEPS = 32
MAX_INDEX = 99
"""All elements before it are looked at, too."""

_STEP = re.compile(
    r"""\.(?: (?P<name>[^\W\d][\w$]* | \$[\w$]*) | "(?P<quoted>(?:[^"]|"")+)" )
      | \[[\ ]*(?: (?P<index>0|[1-9][0-9]{0,9}) | '(?P<text>(?:[^']|'')*)' )[\ ]*\]""",
    re.VERBOSE,
)


def begins_path(expression: str, at: int) -> bool:
    """Whether steps follow behind a name that ends at `at`."""
    return expression[at : at + 1] in (".", "[")


def steps_at(expression: str, at: int) -> tuple[tuple[Step, ...], int]:
    """The steps from `at` on, at least one, and where they end. Raises FilterSyntaxError."""
    steps: list[Step] = []
    while begins_path(expression, at):
        step = _STEP.match(expression, at)
        if step is None:
            problem = (
                "expected a field of the JSON value: .name, .\"a name\", ['a name'], or an element of an array: [0]"
            )
            raise FilterSyntaxError(problem, at, expression)
        if len(steps) == MAX_STEPS:
            raise FilterSyntaxError(f"a field is at most {MAX_STEPS} levels below the value", at, expression)
        steps.append(_step(step, expression))
        at = step.end()
    return tuple(steps), at


def _step(step: re.Match[str], expression: str) -> Step:
    name, quoted, index, text = step.group("name", "quoted", "index", "text")
    if name is not None:
        return name
    if quoted is not None:
        return quoted.replace('""', '"')
    if text is not None:
        return text.replace("''", "'")
    if int(index) > MAX_INDEX:
        raise FilterSyntaxError(f"an index is 0 to {MAX_INDEX}", step.start(), expression)
    return int(index)
