"""Asking the broker what no API of Kafka's can say: our own APIs, HalfmoonMessages, HalfmoonUsers, HalfmoonSecurity and
HalfmoonSchedules (adapters/kafka/api/api_18502_messages.py, api_18503_users.py, …)."""

from __future__ import annotations

from typing import TypeVar

import msgspec

from halfmoon.cli.brokers import Brokers
from halfmoon.cli.connect import connection
from halfmoon.cli.errors import CliError, describe_kafka_error
from halfmoon.hooks import schedules
from halfmoon.services import security
from halfmoon.services.credentials import questions as users
from halfmoon.services.keyindex.questions import Answer, Find, Nacked, Show

MESSAGES, USERS, SECURITY, SCHEDULES = 18502, 18503, 18504, 18508


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


def ask_about_schedules(brokers: Brokers, question: schedules.Question) -> schedules.Answer:
    """Raises CliError where the broker refuses, or knows no such question."""
    answer = msgspec.json.decode(_ask(brokers, SCHEDULES, question), type=schedules.Answer)
    return _accepted(answer)


AnswerT = TypeVar("AnswerT", Answer, users.Answer, security.Answer, schedules.Answer)


def _accepted(answer: AnswerT) -> AnswerT:
    if answer.fault:
        raise CliError(answer.message or answer.fault)
    return answer


def _ask(brokers: Brokers, key: int, question: msgspec.Struct, *, local: bool = False) -> bytes:
    """Raises CliError, and kafka-python's errors where the broker does not let us in."""
    with connection(brokers, local=local) as broker:
        try:
            return broker.ask_own(key, msgspec.json.encode(question))
        except Exception as error:
            from kafka.errors import KafkaConnectionError

            if not isinstance(error, KafkaConnectionError):
                raise
            raise CliError(f"{describe_kafka_error(error)} Or it is not Halfmoon, or an older version") from None
