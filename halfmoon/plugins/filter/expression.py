"""What holds for the expressions of both languages."""

from __future__ import annotations

from halfmoon.plugin import FilterSyntaxError

MAX_LENGTH = 16_384
"""Characters of an expression."""


def check_length(expression: str) -> None:
    """Raises FilterSyntaxError."""
    if len(expression) > MAX_LENGTH:
        raise FilterSyntaxError(
            f"the expression has {len(expression):,} characters, the most are {MAX_LENGTH:,}", MAX_LENGTH, expression
        )
