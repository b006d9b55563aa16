"""Half messages and their ends, by a Kafka producer: the order that makes a crash at any point harmless.

    1. all half messages are stored           a crash after it: the broker asks, the table says no
    2. `decide` commits the local transaction a crash after it: the broker asks, the table says yes
    3. the broker is told

Nothing here knows a database.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Protocol

from halfmoon.kafka import NotStoredError, TransactionalOutbox
from halfmoon.outbox.messages import OutboxMessage, name_of
from halfmoon.outbox.table import State

log = logging.getLogger("halfmoon.outbox")


class Channel(Protocol):
    """How half messages are sent."""

    check_topic: str

    def deliver(
        self, transaction_id: str, messages: Sequence[OutboxMessage], decide: Callable[[], State | None]
    ) -> None:
        """Store the half messages, call `decide`, and tell the broker what it says; None: the broker asks.

        Raises where a half message is not stored: then `decide` was not called. What goes wrong afterwards is logged:
        the broker asks.
        """
        ...

    def transaction_of(self, check: Any) -> str:
        """The name of the half message that a check-back is about. Raises ValueError for a record that is none."""
        ...

    def end(self, name: str, state: State) -> bool:
        """Tell the broker, and wait. False: it has not stored it, and asks once more."""
        ...

    def answer_by(self, answer: Callable[[Any], State | None]) -> None:
        """For a protocol in which the broker asks the producer: what answers. Kafka's check-backs are records, which a
        consumer gives to the outbox."""
        ...


class KafkaChannel:
    """For a confluent_kafka.Producer or kafka.KafkaProducer. `timeout_s`: how long the half messages of a transaction
    may take, and how long their ends."""

    def __init__(self, group: str, producer: Any, timeout_s: float) -> None:
        self._outbox = TransactionalOutbox(group, producer)
        self._timeout_s = timeout_s
        self.check_topic = self._outbox.check_topic

    def deliver(
        self, transaction_id: str, messages: Sequence[OutboxMessage], decide: Callable[[], State | None]
    ) -> None:
        names: list[str] = []
        sent: list[Any] = []
        try:
            for number, each in enumerate(messages):
                name = name_of(transaction_id, number)
                names.append(name)
                sent.append(prepare(self._outbox, name, each))
            self._wait(sent)
        except BaseException:
            # Also those that are on their way: an end that overtakes its half message leads to a check-back.
            with suppress(Exception):
                for name in names:
                    self._outbox.rollback(name)
            raise
        state = decide()
        if state is not None:
            self._end(transaction_id, names, state)

    def transaction_of(self, check: Any) -> str:
        return self._outbox.transaction_of(check)

    def end(self, name: str, state: State) -> bool:
        return self._end(name, [name], state)

    def answer_by(self, answer: Callable[[Any], State | None]) -> None:
        pass

    def _end(self, what: str, names: Sequence[str], state: State) -> bool:
        end = self._outbox.commit if state is State.COMMITTED else self._outbox.rollback
        try:
            self._wait([end(name) for name in names])
        except Exception as error:
            log.warning("event=end_not_stored transaction=%s state=%s error=%r", what, state.value, error)
            return False
        return True

    def _wait(self, sent: Sequence[Any]) -> None:
        """Raises NotStoredError."""
        deadline = time.monotonic() + self._timeout_s
        for each in sent:
            try:
                each.result(max(0.0, deadline - time.monotonic()))
            except TimeoutError:
                raise NotStoredError(f"{each.what} has no answer after {self._timeout_s} s") from None


def prepare(outbox: TransactionalOutbox, name: str, message: OutboxMessage) -> Any:
    """Send a half message; what waits for the broker's answer."""
    if message.whole is not None:
        raise TypeError("a producer of Kafka's protocol sends a topic and a value, not a message of halfmoon.client")
    _, sent = outbox.prepare(
        message.topic, message.value, message.key, message.headers, transaction=name, partition=message.partition
    )
    return sent
