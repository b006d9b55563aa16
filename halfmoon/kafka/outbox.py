"""Transactions with half messages, for users of confluent-kafka, kafka-python and aiokafka: a message is delivered if
and only if the local transaction it belongs to was committed, without a table that has to be polled and emptied.

    outbox = TransactionalOutbox("shop", producer)

    name, sent = outbox.prepare("orders", b"order 7 was paid")   # nobody sees it yet
    sent.result(10)                                              # stored, else it raises (aiokafka: await sent)
    database.commit()
    outbox.commit(name)                                          # now it is delivered

If the program dies between the last two lines, the broker asks for the transaction's outcome, in `outbox.check_topic`
(check-back):

    for check in consumer:               # of any program of the group "shop", subscribed to outbox.check_topic
        name = outbox.transaction_of(check)
        outbox.commit(name) if database.has(name) else outbox.rollback(name)

All of it is records and headers (docs/transactions.md), so any client in any language can do the same.
"""

from __future__ import annotations

import uuid
import warnings
from collections.abc import Iterable
from typing import Any

from halfmoon.kafka.clients import Header, consumed
from halfmoon.kafka.sending import Helper
from halfmoon.plugin import check_topic

END_TOPIC = "halfmoon.transactions"


class TransactionalOutbox(Helper):
    """The transactions of one group of producers. `producer`: a confluent_kafka.Producer, kafka.KafkaProducer or
    aiokafka.AIOKafkaProducer that sends bytes as they are.

    `check_topic`: the topic in which the broker asks (check-back); any consumer of the group may answer.
    """

    def __init__(self, group: str, producer: Any) -> None:
        super().__init__(producer)
        self.check_topic = check_topic(group)
        self._group = group.encode()

    @property
    def checks(self) -> str:
        """The name of `check_topic` until 0.1; goes with the next version."""
        warnings.warn("checks is called check_topic now", DeprecationWarning, stacklevel=2)
        return self.check_topic

    def prepare(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None = None,
        headers: Iterable[Header] = (),
        *,
        transaction: str | None = None,
        partition: int | None = None,
    ) -> tuple[str, Any]:
        """Send a half message: (the transaction's name, a `Sent`, or with aiokafka a task).

        Make sure that it is stored before the local transaction commits: `sent.result(timeout)`, or `await sent`,
        raises NotStoredError if the broker refuses it. `transaction`: a name of your own, such as the id of what is
        being done; a check-back names it. Use each once.
        """
        name = transaction or uuid.uuid4().hex
        more = [*headers, ("TRAN_MSG", b"true"), *self._named(name)]
        return name, self._send(f"the half message of transaction {name}", topic, value, key, more, partition)

    def commit(self, transaction: str) -> Any:
        """Have the message delivered; returns a `Sent`, or a task, as `prepare` does. If the broker never hears of it,
        it asks in `check_topic`."""
        return self._end(transaction, b"commit")

    def rollback(self, transaction: str) -> Any:
        """Have the message dropped; returns a `Sent`, or a task, as `prepare` does."""
        return self._end(transaction, b"rollback")

    def transaction_of(self, check: Any) -> str:
        """The transaction that a record of `check_topic` asks about."""
        for name, content in consumed(check).headers:
            if name == "UNIQ_KEY" and content is not None:
                return content.decode(errors="surrogateescape")  # any bytes can be a name
        raise ValueError("this record is no check-back: it has no header UNIQ_KEY")

    def _end(self, transaction: str, state: bytes) -> Any:
        headers = [*self._named(transaction), ("TRAN_STATE", state)]
        return self._send(f"the {state.decode()} of transaction {transaction}", END_TOPIC, b"", None, headers, None)

    def _named(self, transaction: str) -> list[Header]:
        return [("PGROUP", self._group), ("UNIQ_KEY", transaction.encode(errors="surrogateescape"))]
