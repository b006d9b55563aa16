"""Questions as bytes: [shard, question] in, the answer out. What a process does with those that others ask it.

A process keeps one connection to each other one. A new one begins with `Hello`, and from then on nothing is taken from
the one before: what was asked there may be asked again on the new one, and must not come after that.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import Any, Union

import msgspec

from halfmoon.cluster.asking import Answerer, Answering, Answers, Told
from halfmoon.cluster.messages import Answer, Done, Hello, Ping, Question, Refusal, error_of, refusal_of
from halfmoon.errors import BrokerError, Fault

PROCESS = -1
"""In a shard's place: the question is for the process."""

_encode = msgspec.msgpack.Encoder().encode


def encode_question(shard: int, question: Question) -> bytes:
    return _encode((shard, question))


def encode_answer(answer: object) -> bytes:
    """`answer`: or a BrokerError."""
    if isinstance(answer, BrokerError):
        return _encode(refusal_of(answer))
    assert isinstance(answer, Answer)
    return _encode(answer)


class Codec:
    """Knows all questions and answers there are when it is made."""

    def __init__(self) -> None:
        # Unions of all messages: the tag says which it is.
        questions: Any = Union[tuple(Question.__subclasses__())]  # noqa: UP007 (made of a tuple)
        answers: Any = Union[tuple(Answer.__subclasses__())]  # noqa: UP007
        self._questions = msgspec.msgpack.Decoder(tuple[int, questions])
        self._answers = msgspec.msgpack.Decoder(answers)

    def question(self, data: bytes | memoryview) -> tuple[int, Question]:
        """Raises msgspec.DecodeError."""
        found: tuple[int, Question] = self._questions.decode(data)
        return found

    def answer(self, data: bytes | memoryview) -> Answer | BrokerError:
        found: Answer = self._answers.decode(data)
        return error_of(found) if isinstance(found, Refusal) else found


class Receiver:
    """What the process is asked by others."""

    def __init__(self, inboxes: Mapping[int, Answering]) -> None:
        """`inboxes`: by shard, and that of PROCESS."""
        self._inboxes = inboxes
        self._codec = Codec()
        self._present: dict[int, Hashable] = {}
        """Process → its connection."""
        self._of_connection: dict[Hashable, int] = {}

    def take(self, connection: Hashable, data: bytes | memoryview, done: Callable[[bytes | None], object]) -> None:
        """A question has come by a connection. `done` is given the answer, or None: the connection is to be closed,
        since there is a newer one. Raises msgspec.DecodeError."""
        try:
            shard, question = self._codec.question(data)
        except msgspec.ValidationError as error:
            if connection not in self._of_connection:
                raise
            # One of the next version, which knows what to do with that. The connection has other questions.
            done(encode_answer(BrokerError(Fault.UNSUPPORTED_VERSION, f"this process does not know that: {error}")))
            return
        if isinstance(question, Hello):
            before = self._present.get(question.process)
            if before is not None:
                self._of_connection.pop(before, None)
            self._present[question.process] = connection
            self._of_connection[connection] = question.process
            done(encode_answer(Done()))
            return
        if connection not in self._of_connection:
            done(None)
            return
        if isinstance(question, Ping):
            done(encode_answer(Done()))
            return
        inbox = self._inboxes.get(shard)
        if inbox is None:
            done(encode_answer(BrokerError(Fault.NOT_LEADER_OR_FOLLOWER, f"shard {shard} is not here")))
            return

        def told(answer: object) -> None:
            done(encode_answer(answer))

        inbox.answer(question, told)

    def drop(self, connection: Hashable) -> None:
        """A connection is gone."""
        process = self._of_connection.pop(connection, None)
        if process is not None and self._present.get(process) is connection:
            del self._present[process]


class Inbox:
    """What one shard, or the process, answers: tables of features put together."""

    def __init__(self, *tables: Answers) -> None:
        self._answers: dict[type[Question], Answerer] = {
            kind: answer for table in tables for kind, answer in table.items()
        }

    def add(self, table: Answers) -> None:
        """What is answered, too."""
        self._answers.update(table)

    def answer(self, question: Question, told: Told) -> None:
        """As of Answering."""
        answer = self._answers.get(type(question))
        if answer is None:
            told(BrokerError(Fault.UNSUPPORTED_VERSION, f"{type(question).__name__} is answered by nobody here"))
            return
        try:
            answer(question, told)
        except BrokerError as error:
            told(error)
