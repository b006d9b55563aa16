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


Timer = Callable[[float, Callable[[], None]], object]
"""(seconds, callback): calls back once."""

PATIENCE_S, PAUSE_S = 4.0, 0.1
"""A shard of a node that has died is elsewhere after 2 s. RocketMQ's tools wait 5 s for an answer, Kafka's 30."""


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


class PatientAsking:
    """Asks a shard again where it cannot be reached: it moves, or the process that had it has died, and another one has
    it soon. For who asks once, on behalf of a client. What is asked again may come behind what was asked later."""

    def __init__(self, asking: Asking, later: Timer, now_s: Callable[[], float]) -> None:
        """`now_s`: monotonic."""
        self._asking = asking
        self._later = later
        self._now_s = now_s

    def ask(self, shard: int, question: Question, told: Told) -> None:
        self._ask(shard, question, told, self._now_s() + PATIENCE_S)

    def _ask(self, shard: int, question: Question, told: Told, until_s: float) -> None:
        def answered(answer: object) -> None:
            error = refused(answer)
            if error is None or error.fault is not Fault.NOT_LEADER_OR_FOLLOWER or self._now_s() + PAUSE_S > until_s:
                told(answer)
            else:
                self._later(PAUSE_S, lambda: self._ask(shard, question, told, until_s))

        self._asking.ask(shard, question, answered)


def nobody(_answer: object) -> None:
    """As Told: nobody waits for the answer."""


def refused(answer: object) -> BrokerError | None:
    return answer if isinstance(answer, BrokerError) else None


def error_in(answer: object) -> BrokerError:
    """What is told in the place of the answer that was expected."""
    kind = type(answer).__name__
    return refused(answer) or BrokerError(Fault.UNKNOWN_SERVER_ERROR, f"an answer of another kind: {kind}")
