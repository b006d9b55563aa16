"""What a filter language is: a function that compiles an expression into something that matches records."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Protocol

from halfmoon.errors import HalfmoonError


class MessageFilter(Protocol):
    """A compiled filter expression. It keeps nothing from one record to the next.

    One with an attribute `takes_long` that is true takes long for a record: the broker calls `match` in a thread for
    what holds more than `IN_LOOP_BYTES`, so that nobody waits.
    """

    needle: re.Pattern[bytes] | None
    """Something that occurs in the bytes of every record that matches, as record_codec.py draws them; records
    without it are passed over unread. None if there is no such thing."""

    def match(self, record: Any) -> bool:
        """Whether this record matches."""
        ...


IN_LOOP_BYTES = 16 << 10
"""Decompressed records that one who takes long is asked about in the loop. A thread costs 0.1 ms."""


def takes_long(message_filter: MessageFilter, body: bytes) -> bool:
    """Whether the filter is to look at these records in a thread."""
    return len(body) > IN_LOOP_BYTES and getattr(message_filter, "takes_long", False) is True


class FilterSyntaxError(HalfmoonError):
    """An expression that cannot be compiled: what is wrong or was expected, and where.

    `position` counts characters from 0, `line` and `column` from 1.
    """

    def __init__(self, message: str, position: int, expression: str) -> None:
        self.position = position
        self.line = expression.count("\n", 0, position) + 1
        self.column = position - (expression.rfind("\n", 0, position) + 1) + 1
        super().__init__(f"{message} (line {self.line}, column {self.column})")


FilterCompiler = Callable[[str], MessageFilter]
