"""Asking the broker what no API of Kafka's can say: our own APIs, HalfmoonMessages, HalfmoonUsers, HalfmoonSecurity,
HalfmoonDelays and HalfmoonSchedules (adapters/kafka/api/api_18502_messages.py, api_18503_users.py, …)."""

from __future__ import annotations

import time
from typing import TypeVar

import msgspec

from halfmoon.cli.brokers import Brokers
from halfmoon.cli.connect import RETRY_FOR_S, RETRY_PAUSE_S, connection
from halfmoon.cli.errors import CliError, describe_kafka_error
from halfmoon.cli.kafka_connection import Connection
from halfmoon.hooks import schedules
from halfmoon.services import security
from halfmoon.services.credentials import questions as users
from halfmoon.services.delays import paging
from halfmoon.services.delays import questions as delays
from halfmoon.services.keyindex.questions import Answer, Find, Nacked, Show

MESSAGES, USERS, SECURITY, DELAYS, SCHEDULES = 18502, 18503, 18504, 18506, 18508
AWAY = frozenset(("NOT_LEADER_OR_FOLLOWER", "REQUEST_TIMED_OUT", "COORDINATOR_LOAD_IN_PROGRESS"))
"""What a broker says of a shard that has just moved, or cannot be reached."""


def ask(brokers: Brokers, question: Find | Show | Nacked) -> Answer:
    """Raises CliError where the broker refuses, or knows no such question."""
    answer = msgspec.json.decode(_ask(brokers, MESSAGES, question), type=Answer)
    return _accepted(answer)


def ask_about_users(brokers: Brokers, question: users.Question) -> users.Answer:
    """Raises CliError where the broker refuses, or knows no such question."""
    answer = msgspec.json.decode(_ask(brokers, USERS, question, local=True), type=users.Answer)
    return _accepted(answer)


def ask_about_security(brokers: Brokers, question: security.Question) -> security.Answer:
    """Raises CliError where the broker refuses, or knows no such question."""
    answer = msgspec.json.decode(_ask(brokers, SECURITY, question, local=True), type=security.Answer)
    return _accepted(answer)


def ask_about_delays(brokers: Brokers, asking: paging.Asking[paging.Result]) -> paging.Result:
    """The result, once all that it takes is answered, over one connection. A shard that is away is asked again for a
    while. Raises CliError where the broker refuses, or knows no such question; PartlyChangedError."""
    deadline = time.monotonic() + RETRY_FOR_S
    with connection(brokers) as broker:

        def answered(question: delays.Question) -> delays.Answer:
            while True:
                answer = msgspec.json.decode(_asked(broker, DELAYS, question), type=delays.Answer)
                if answer.fault not in AWAY or time.monotonic() > deadline:
                    return _accepted(answer)
                time.sleep(RETRY_PAUSE_S)

        try:
            return paging.run(asking, answered)
        except paging.UnexpectedAnswerError:
            raise CliError("the broker sent an unexpected response") from None


def ask_about_schedules(brokers: Brokers, question: schedules.Question) -> schedules.Answer:
    """Raises CliError where the broker refuses, or knows no such question."""
    answer = msgspec.json.decode(_ask(brokers, SCHEDULES, question), type=schedules.Answer)
    return _accepted(answer)


AnswerT = TypeVar("AnswerT", Answer, users.Answer, security.Answer, delays.Answer, schedules.Answer)


def _accepted(answer: AnswerT) -> AnswerT:
    if answer.fault:
        raise CliError(answer.message or answer.fault)
    return answer


def _ask(brokers: Brokers, key: int, question: msgspec.Struct, *, local: bool = False) -> bytes:
    """Raises CliError, and kafka-python's errors where the broker does not let us in."""
    with connection(brokers, local=local) as broker:
        return _asked(broker, key, question)


def _asked(broker: Connection, key: int, question: msgspec.Struct) -> bytes:
    """Raises as `_ask`."""
    try:
        return broker.ask_own(key, msgspec.json.encode(question))
    except Exception as error:
        from kafka.errors import KafkaConnectionError

        if not isinstance(error, KafkaConnectionError):
            raise
        raise CliError(f"{describe_kafka_error(error)} Or it is not Halfmoon, or an older version") from None
