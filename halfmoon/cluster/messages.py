"""Questions and answers of shards, as msgpack: each an array whose first element names its type.

Fields are only ever added at the end, with a default: processes of neighbouring versions understand each other.
"""

from __future__ import annotations

from typing import Any

import msgspec

from halfmoon.errors import BrokerError, Fault


class Question(msgspec.Struct, array_like=True, frozen=True, tag=True):
    """Base of all questions."""


class Answer(msgspec.Struct, array_like=True, frozen=True, tag=True):
    """Base of all answers."""


class Done(Answer, frozen=True, tag="done"):
    """It is done, and durable."""


class Refusal(Answer, frozen=True, tag="refusal"):
    """A BrokerError."""

    fault: str
    message: str


def error_of(refusal: Refusal) -> BrokerError:
    return BrokerError(Fault[refusal.fault], refusal.message)


def refusal_of(error: BrokerError) -> Refusal:
    return Refusal(error.fault.name, error.message)


encode: Any = msgspec.msgpack.Encoder().encode
