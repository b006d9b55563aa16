"""The words of SQL92: an expression as tokens."""

from __future__ import annotations

import re
from typing import Literal, NamedTuple, cast

from halfmoon.plugin import FilterSyntaxError
from halfmoon.plugins.filter.json_fields import Step
from halfmoon.plugins.filter.sql_paths import ROOT, begins_path, steps_at

Kind = Literal["text", "int", "float", "name", "path", "keyword", "symbol", "end"]


class Token(NamedTuple):
    kind: Kind
    text: str
    """Keywords in capitals, all else as written."""
    at: int
    """Characters before it."""
    steps: tuple[Step, ...] = ()
    """Of a path."""

    def __str__(self) -> str:
        return "the end" if self.kind == "end" else self.text if self.kind == "text" else f"'{self.text}'"


KEYWORDS = frozenset(
    ["AND", "BETWEEN", "CONTAINS", "ENDSWITH", "FALSE", "IN", "IS", "NOT", "NULL", "OR", "STARTSWITH", "TRUE"]
)
OUR_KEYWORDS = frozenset(["ESCAPE", "LIKE"])
"""Only where no property can stand."""

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
    ".": "a field of the JSON value is written value.name",
    "[": "an element of the JSON value is written value[0] or value.name[0]",
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
        end = match.end()
        steps: tuple[Step, ...] = ()
        if kind == "name" and text.upper() in KEYWORDS:
            kind, text = "keyword", text.upper()
        elif kind == "name" and text == ROOT and begins_path(expression, end):
            steps, end = steps_at(expression, end)
            kind, text = "path", expression[at:end]
        if kind != "space":
            found.append(Token(cast("Kind", kind), text, at, steps))
        at = end
    found.append(Token("end", "", at))
    return found


def word_of(token: Token) -> str:
    """A keyword or symbol, and what would be one here if it were no name; "" for all else."""
    if token.kind == "name":
        return token.text.upper() if token.text.upper() in OUR_KEYWORDS else ""
    return token.text if token.kind in ("keyword", "symbol") else ""


def unquoted(token: Token) -> str:
    return token.text[1:-1].replace("''", "'")
