"""Helpers for users of Kafka's Python clients.

For kafka-python, against any Kafka, Halfmoon or not:

    sticky = halfmoon.kafka.assignor("sticky")
    consumer = KafkaConsumer("orders", group_id="billing", partition_assignment_strategy=[sticky])

For confluent-kafka, kafka-python and aiokafka, against Halfmoon:

    nack = halfmoon.kafka.Nack("billing", producer)
    nack(record).result(10)  # could not be handled: it is redelivered later, in nack.topic

    outbox = halfmoon.kafka.TransactionalOutbox("shop", producer)
    name, sent = outbox.prepare("orders", b"paid")  # delivered when it is committed
    sent.result(10)  # stored, else it raises
    outbox.commit(name)

    ConsumerLoop(consumer, ["orders"], handle, nack=nack).run()  # until SIGTERM; aiokafka: AsyncConsumerLoop
    schedules = halfmoon.kafka.Schedules(producer)
    schedules.create("reports", "nightly", "30 2 * * *", b"run", zone="Europe/Berlin").result(10)
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

from halfmoon.kafka.async_loop import AsyncConsumerLoop
from halfmoon.kafka.handling import DeadLetter, RetryLater
from halfmoon.kafka.loop import ConsumerLoop
from halfmoon.kafka.nacking import Nack, attempts, original_topic
from halfmoon.kafka.outbox import TransactionalOutbox
from halfmoon.kafka.schedules import Schedules
from halfmoon.kafka.sending import NotStoredError, Sent

if TYPE_CHECKING:
    from halfmoon.kafka.assignors import AllocatorAssignor, assignor

__all__ = [
    "AllocatorAssignor",
    "AsyncConsumerLoop",
    "ConsumerLoop",
    "DeadLetter",
    "Nack",
    "NotStoredError",
    "RetryLater",
    "Schedules",
    "Sent",
    "TransactionalOutbox",
    "assignor",
    "attempts",
    "original_topic",
]


def __getattr__(name: str) -> Any:
    """The assignors, imported when they are asked for: they need kafka-python, which takes half of the import, and
    a program with another client has no use for it. And `HandBack`, the name of `Nack` until 0.1, which goes with the
    next version."""
    if name in {"AllocatorAssignor", "assignor"}:
        from halfmoon.kafka import assignors

        return getattr(assignors, name)
    if name == "HandBack":
        warnings.warn("halfmoon.kafka.HandBack is called Nack now", DeprecationWarning, stacklevel=2)
        return Nack
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
