"""A message is handled once, where it may be delivered more than once: its id is inserted in the transaction that
handles it.

The id says where the message was produced: TOPIC/PARTITION/OFFSET. A record that the group negatively acknowledged is
redelivered in `retry.<group>`, and the broker tells there where it was first consumed (ORIGIN_MESSAGE_ID), so both have
one id. In other topics that header counts for nothing: a program may have copied it to another message.

A topic that is deleted and made anew begins at offset 0 once more. So the record's timestamp is kept, and a record at
the same place with another one is another message.

RocketMQ's messages have a unique key, which their producer's client gives them and a redelivery keeps. One that Kafka's
client has produced has none: it is known by the broker's id of its place.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from halfmoon.kafka.clients import consumed
from halfmoon.outbox.table import fitting
from halfmoon.plugin import retry_topic

ORIGIN, UNIQ_KEY = "ORIGIN_MESSAGE_ID", "UNIQ_KEY"

IdOf = Callable[[Any], str]


class MessageId(NamedTuple):
    text: str
    record_ms: int | None
    """Timestamp of the record at this place; None where it says nothing about which message it is."""


class Identity:
    """How a group tells messages apart. `id_of`: in place of what is described above; it must give one id for each
    message, and keep it when that is produced anew: the content of a header, for instance."""

    def __init__(self, group: str, id_of: IdOf | None) -> None:
        self._retry_topic = retry_topic(group)
        self._rocketmq_retry_topic = f"%RETRY%{group}"
        self._id_of = id_of

    def __call__(self, record: Any) -> MessageId:
        if self._id_of is not None:
            found: Any = self._id_of(record)
            if not isinstance(found, str) or not found:
                raise ValueError(f"id_of gave {found!r}, expected text")
            return MessageId(fitting(found), None)
        if hasattr(record, "queue_offset"):  # halfmoon.client's ReceivedMessage
            return MessageId(fitting(f"{record.topic}:{self._key_of(record)}"), None)
        there = consumed(record)
        if there.topic == self._retry_topic:
            for name, content in there.headers:
                if name == ORIGIN and content is not None:
                    return MessageId(fitting(content.decode(errors="replace")), None)
        return MessageId(f"{there.topic}/{there.partition}/{there.offset}", _timestamp_ms(record))

    def _key_of(self, message: Any) -> str:
        if not message.properties.get(UNIQ_KEY) and message.queue.topic == self._rocketmq_retry_topic:
            return str(message.properties.get(ORIGIN) or message.message_id)
        return str(message.message_id)


def header(name: str) -> IdOf:
    """For `id_of`: the content of this header. Raises ValueError for a record without it."""

    def id_of(record: Any) -> str:
        if hasattr(record, "queue_offset"):
            found = record.properties.get(name)
            if found is not None:
                return str(found)
        else:
            for each, content in consumed(record).headers:
                if each == name and content is not None:
                    return content.decode(errors="replace")
        raise ValueError(f"the record has no header {name}")

    return id_of


def _timestamp_ms(record: Any) -> int | None:
    said = record.timestamp
    if callable(said):  # confluent_kafka.Message: (type, ms), type 0 where there is none
        kind, said = said()
        return said if kind else None
    return None if said is None or said < 0 else int(said)
