"""Answers that wait for the log: a change is told to the client only once it would survive a power loss.

An admin request changes several things at once, each with its own result. All their control frames go into the same
group commit, so one wait for the last of them serves the whole answer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from halfmoon.adapters.kafka.errors import code_of
from halfmoon.adapters.kafka.registry import Context


def refuse(result: Any, error: Exception) -> None:
    """Write an error into a result that has a code and a message."""
    result.error_code = code_of(error)
    result.error_message = str(error)


def when_durable(
    ctx: Context,
    position: int | None,
    response: Any,
    changed: Sequence[Any],
    fail: Callable[[Any, Exception], None] = refuse,
) -> object:
    """`response`, once the log is durable up to `position`; at once if that is None, which means nothing was changed.

    If the log cannot keep what was written, `fail` turns each of the results in `changed` into an error first.
    """
    if position is None:
        return response

    def on_error(error: Exception) -> object:
        for result in changed:
            fail(result, error)
        return response

    return ctx.after(position, response, on_error)


def later(position: int | None, other: int) -> int:
    """The later of two log positions, the first of which may not exist yet."""
    return other if position is None else max(position, other)
