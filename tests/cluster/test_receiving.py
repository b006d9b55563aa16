"""What a process makes of questions of a neighbouring version: it understands more fields, and refuses what it does not
know, without closing the connection."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from halfmoon.cluster.messages import Done, Hello, Ping
from halfmoon.cluster.receiving import PROCESS, Codec, Inbox, Receiver, encode_question
from halfmoon.errors import BrokerError, Fault


class Others:
    """A process that asks."""

    def __init__(self) -> None:
        self.receiver = Receiver({PROCESS: Inbox()})
        self.answers: list[Any] = []

    def ask(self, question: list[Any] | Any, connection: str = "a") -> Any:
        encoded = msgspec.msgpack.encode([PROCESS, question]) if isinstance(question, list) else question
        self.receiver.take(connection, encoded, self.answers.append)
        answer = self.answers.pop()
        return None if answer is None else Codec().answer(answer)


def test_fields_that_are_added_are_not_looked_at() -> None:
    asking = Others()
    assert asking.ask(["hello", 7, "of the next version"]) == Done()
    assert asking.ask(["ping", 1, 2, 3]) == Done()
    assert asking.ask(encode_question(PROCESS, Ping())) == Done()


def test_a_question_of_the_next_version_is_refused_and_the_others_are_answered() -> None:
    asking = Others()
    asking.ask(encode_question(PROCESS, Hello(7)))
    refused = asking.ask(["a question that there will be", 1])
    assert isinstance(refused, BrokerError)
    assert refused.fault is Fault.UNSUPPORTED_VERSION
    assert asking.ask(encode_question(PROCESS, Ping())) == Done()


def test_who_does_not_say_who_it_is_and_what_is_no_question_is_not_answered() -> None:
    asking = Others()
    with pytest.raises(msgspec.DecodeError):
        asking.ask(["a question that there will be", 1])
    asking.ask(encode_question(PROCESS, Hello(7)))
    with pytest.raises(msgspec.DecodeError):
        asking.ask(b"\xc1")
    assert asking.ask(encode_question(PROCESS, Hello(7)), "b") == Done()
    assert asking.ask(["a question that there will be", 1], "b").fault is Fault.UNSUPPORTED_VERSION


def test_a_fault_that_the_next_version_will_have_is_an_error_all_the_same() -> None:
    answer = Codec().answer(msgspec.msgpack.encode(["refusal", "A_FAULT_THAT_THERE_WILL_BE", "it cannot be"]))
    assert isinstance(answer, BrokerError)
    assert (answer.fault, answer.message) == (Fault.UNKNOWN_SERVER_ERROR, "it cannot be")
