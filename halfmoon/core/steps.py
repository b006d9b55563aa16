"""Answers that are worked out in steps: a generator yields functions for a thread, since they read from the disk, and
is sent what they return; its own return value is the answer. What such a function raises, the yield raises. *Slices*
also yield None, where others are to have a turn."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, TypeVar, cast

from halfmoon.core.relay import Load

AnswerT = TypeVar("AnswerT")
Steps = Generator[Load, Any, AnswerT]
Slices = Generator[Load | None, Any, AnswerT]
"""Steps that also yield None, to let others have their turn. Each takes a millisecond or so."""
Pauses = Generator[None, None, AnswerT]
"""Slices that read nothing."""


def finish(slices: Slices[AnswerT]) -> AnswerT:
    """What they return, carried out here and now, whatever it takes."""
    value: Any = None
    while True:
        try:
            load = slices.send(value)
        except StopIteration as done:
            return cast(AnswerT, done.value)
        value = None if load is None else load()
