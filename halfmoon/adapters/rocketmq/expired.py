"""Expired messages of topics that dead-letter them: a pull hands them back in its group's name (docs/ttl.md).

A pull has no memory: the same messages may be pulled again, by another consumer or after a restart. So the dead letter
goes the way of a negative acknowledgement, to the group's retry topic. There the retry plugin dead-letters it once,
however often it is sent (RETRY_OF), until the group has committed beyond it. The pull goes on once that is durable: a
consumer never commits beyond a message whose dead letter could still be lost.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from halfmoon.adapters.rocketmq.members import CLUSTERING
from halfmoon.core.catalog.topics import Partition, Topic
from halfmoon.core.records.batches import build_batch
from halfmoon.core.records.record_codec import Record
from halfmoon.errors import BrokerError, Fault
from halfmoon.hooks.features import NackedMessages
from halfmoon.schema.group_topics import retry_topic
from halfmoon.schema.lifetimes import CONSUMED_TIMESTAMP, EXPIRES

if TYPE_CHECKING:
    from halfmoon.adapters.rocketmq.node import Node

log: Final = logging.getLogger("halfmoon.rocketmq")

AT_ONCE: Final = 100
"""Messages that are handed back in one batch."""
AT_ONCE_BYTES: Final = 256 << 10
REPLACED: Final = frozenset(
    ("DELAY", "TIMER_DELAY_SEC", "TIMER_DELAY_MS", "TIMER_DELIVER_MS", "RETRY_OF", EXPIRES, CONSUMED_TIMESTAMP)
)
FOR_GOOD: Final = frozenset(
    (
        Fault.MESSAGE_TOO_LARGE,
        Fault.INVALID_RECORD,
        Fault.INVALID_TOPIC_EXCEPTION,
        Fault.POLICY_VIOLATION,
        Fault.INVALID_CONFIG,
    )
)
"""What does not get better: without a dead letter, so that it does not hold up the group."""

Told = Callable[[BrokerError | None], None]


class ExpiredMessage(NamedTuple):
    offset: int
    record: Record
    expires_ms: int


def has_dead_letters(node: Node, group: str) -> bool:
    """Whether expired messages can be dead-lettered for a group: one whose consumers share the queues and commit what
    they have consumed. Nobody else's pull says that the group has missed something."""
    known = node.members.consumer_group(group)
    return known is not None and known.model == CLUSTERING and node.services.find(NackedMessages) is not None


def nack_expired(node: Node, group: str, partition: Partition, messages: Sequence[ExpiredMessage], told: Told) -> None:
    """Have these dead-lettered; told once that is durable, or with what is wrong for now."""
    place = f"{partition.topic.name}/{partition.index}/"
    batch = build_batch(
        (
            each.record.key,
            each.record.value,
            each.record.timestamp,
            (
                *(header for header in each.record.headers if header[0] not in REPLACED),
                ("RETRY_OF", f"{place}{each.offset}".encode()),
                (EXPIRES, b"%d" % each.expires_ms),
            ),
        )
        for each in messages
    )

    def done(error: BrokerError | None) -> None:
        if error is not None and error.fault in FOR_GOOD:
            log.error(
                "event=no_dead_letter group=%s partition=%r first=%d count=%d reason=%s",
                group, partition, messages[0].offset, len(messages), error.message,
            )  # fmt: skip
            error = None
        told(error)

    try:
        node.group_topic(retry_topic(group), partial(_store, node, batch, done))
    except BrokerError as error:
        done(error)


def _store(node: Node, batch: bytes, done: Told, topic: Topic | BrokerError) -> None:
    """The retry topic lies where its group is coordinated, where it is known what was handed back before."""
    if isinstance(topic, BrokerError):
        done(topic)
        return
    core, shards, retry = node.core, node.shards, topic.partitions[0]
    if shards is not None and node.queues.id_of(retry) < 0:
        shards.messages.append(topic, 0, batch, lambda found: done(found if isinstance(found, BrokerError) else None))
        return
    try:
        produced = core.append(retry, memoryview(bytearray(batch)), core.clock.wall_ms())
    except BrokerError as error:
        done(error)
        return
    core.when_durable(produced.position, done)
