"""Answers that wait for the log: what a client is told of the broker's state would survive a power loss.

That is so of a change, of an answer that there is nothing to change, since it is so already, and of what is only looked
at: a client that repeats a request, or compares what is with what it wants, does nothing more then
(docs/decisions/0131). All changes of one request go into the same group commit, so one wait serves the whole answer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from inspect import isgeneratorfunction
from typing import Any

from halfmoon.adapters.kafka.errors import NONE, code, code_of
from halfmoon.adapters.kafka.protocol import Slices
from halfmoon.adapters.kafka.registry import Close, Context
from halfmoon.errors import Fault

Handler = Callable[[Context, Any], object]
Fail = Callable[[Any, Exception], object]
"""(answer, error) → what is answered in its place."""

TELLING = frozenset(
    (
        NONE,
        code(Fault.TOPIC_ALREADY_EXISTS),
        code(Fault.UNKNOWN_TOPIC_OR_PARTITION),
        code(Fault.UNKNOWN_TOPIC_ID),
        code(Fault.INVALID_PARTITIONS),
        code(Fault.GROUP_ID_NOT_FOUND),
        code(Fault.INVALID_TXN_STATE),
        code(Fault.RESOURCE_NOT_FOUND),
    )
)
"""Codes by which a client learns how something is. Others say that it has asked for something wrong."""


def refuse(result: Any, error: Exception) -> None:
    """Write an error into a result that has a code and a message."""
    result.error_code = code_of(error)
    result.error_message = str(error)


def _close(_answer: Any, error: Exception) -> object:
    """Of answers with no room for it: the client asks again, and another time."""
    return Close(f"what would be told is not durable: {error}")


def each_of(field: str, fail: Callable[[Any, Exception], object] = refuse) -> Fail:
    """`fail` turns each result in the answer's list `field` into an error that told how something is."""

    def fail_all(answer: Any, error: Exception) -> object:
        for result in getattr(answer, field):
            if result.error_code in TELLING:
                fail(result, error)
        return answer

    return fail_all


def tells_state(fail: Fail = _close) -> Callable[[Handler], Handler]:
    """Have the answer of a handler leave once all is durable that the broker's state rests on, its own changes
    included. Where the log has failed, and will not keep some of it, what `fail` makes of the answer leaves."""

    def wait(ctx: Context, answer: object) -> object:
        return ctx.after(ctx.core.turn.state_position, answer, lambda error: fail(answer, error))

    def decorate(handler: Handler) -> Handler:
        if isgeneratorfunction(handler):

            @wraps(handler)
            def in_slices(ctx: Context, request: Any) -> Slices[object]:
                return wait(ctx, (yield from handler(ctx, request)))

            return in_slices

        @wraps(handler)
        def at_once(ctx: Context, request: Any) -> object:
            return wait(ctx, handler(ctx, request))

        return at_once

    return decorate


def when_durable(
    ctx: Context, position: int, response: Any, changed: Sequence[Any], fail: Callable[[Any, Exception], None]
) -> object:
    """`response`, once the log is durable up to `position`.

    If the log cannot keep what was written, `fail` turns each of the results in `changed` into an error first.
    """

    def on_error(error: Exception) -> object:
        for result in changed:
            fail(result, error)
        return response

    return ctx.after(position, response, on_error)
