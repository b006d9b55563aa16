"""What shards ask each other, wherever they are: the port.

A question is a message of `cluster/messages.py`; it goes to the shard that is named, and its answer, or the error that
stands in the answer's place, comes back once. Questions from one process to one shard arrive in the order in which
they were asked. A question is asked again by whoever asked it, so each can be asked twice without harm.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from halfmoon.cluster.messages import Question
from halfmoon.errors import BrokerError, Fault

Told = Callable[[object], None]
"""Called once: with the answer, or with a BrokerError. NOT_LEADER_OR_FOLLOWER: the shard cannot be reached now, and
nobody knows whether it has heard the question."""
Answerer = Callable[[Any, Told], None]
"""(question, told): answers questions of one type, as of Answering."""
Answers = Mapping[type[Question], Answerer]
"""By the type of the question."""


class Asking(Protocol):
    def ask(self, shard: int, question: Question, told: Told) -> None:
        """Ask a shard. `told` is called later, or before this returns. A shard of this process is asked without a
        connection."""
        ...


class Answering(Protocol):
    """A shard's side of it."""

    def answer(self, question: Question, told: Told) -> None:
        """Answer once everything that the answer rests on is durable. What is wrong is told as a BrokerError."""
        ...


def nobody(_answer: object) -> None:
    """As Told: nobody waits for the answer."""


def refused(answer: object) -> BrokerError | None:
    return answer if isinstance(answer, BrokerError) else None


def error_in(answer: object) -> BrokerError:
    """What is told in the place of the answer that was expected."""
    kind = type(answer).__name__
    return refused(answer) or BrokerError(Fault.UNKNOWN_SERVER_ERROR, f"an answer of another kind: {kind}")
