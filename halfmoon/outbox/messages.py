"""The messages of one local transaction, before they are sent, and their names at the broker.

A half message is called `ID#N`: the transaction's id, as in the table, and the number of the message in it. So a
check-back of any of them leads to the one row that decides them all.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterable
from typing import Any

from msgspec import Struct

from halfmoon.errors import HalfmoonError
from halfmoon.kafka.clients import Header
from halfmoon.outbox.table import check_name

MOST_MESSAGES = 10_000
"""Of one transaction: so many half messages, or ends, the broker takes in one batch."""

_NAME = re.compile(r"(.+)#[0-9]+", re.DOTALL)


class OutboxError(HalfmoonError):
    """A local transaction was rolled back because its messages could not be delivered with it."""


class OutboxMessage(Struct, frozen=True):
    """A message that waits for the end of its block."""

    topic: str
    value: bytes | None
    key: bytes | None
    headers: tuple[Header, ...]
    partition: int | None
    whole: Any = None
    """A message of halfmoon.client, in place of all that."""


def name_of(transaction_id: str, number: int) -> str:
    return f"{transaction_id}#{number}"


def transaction_id_of(name: str) -> str | None:
    """None for a half message that no outbox has sent."""
    match = _NAME.fullmatch(name)
    return None if match is None else match[1]


class Transaction:
    """A local transaction, inside of its block."""

    def __init__(self, transaction_id: str | None) -> None:
        self.id = check_name("transaction", uuid.uuid4().hex if transaction_id is None else transaction_id)
        self._messages: list[OutboxMessage] = []
        self._has_ended = False

    def send(
        self,
        topic: Any,
        value: bytes | None = None,
        key: bytes | None = None,
        headers: Iterable[Header] = (),
        *,
        partition: int | None = None,
    ) -> None:
        """Have a message delivered if, and only if, this transaction commits. It is sent at the end of the block, so
        nothing reaches the broker where the block raises.

        `topic`: a name; with an OutboxProducer of RocketMQ's protocol also a whole `halfmoon.client.Message`.

        Raises TypeError for a value or a key that is not bytes, ValueError after the end of the block, and for more
        than 10,000 messages.
        """
        if self._has_ended:
            raise ValueError("the transaction has ended")
        for what, content in (("value", value), ("key", key)):
            if content is not None and not isinstance(content, bytes):
                raise TypeError(f"the {what} is {type(content).__name__}, expected bytes or None")
        if len(self._messages) == MOST_MESSAGES:
            raise ValueError(f"a transaction sends at most {MOST_MESSAGES} messages")
        if isinstance(topic, str):
            self._messages.append(OutboxMessage(topic, value, key, tuple(headers), partition))
        else:
            self._messages.append(OutboxMessage(topic.topic, None, None, (), None, whole=topic))

    def end(self) -> list[OutboxMessage]:
        """No more messages; those there are. Called by the outbox."""
        self._has_ended = True
        return self._messages
