"""Negative acknowledgement of single records, for users of confluent-kafka, kafka-python and aiokafka.

The broker redelivers a record that is negatively acknowledged (nacked) after a delay, and dead-letters it after a
number of attempts. One Produce is all it takes; the rest is the broker's work (docs/retry.md). So any client in any
language can do the same.

    nack = Nack("billing", producer)
    for record in consumer:            # subscribed to "orders" and nack.topic
        try:
            handle(record)
        except Exception:
            nack(record)               # delay level 3 the first time, then 4, 5, …
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from typing import Any

from halfmoon.kafka.clients import Consumed, Header, consumed, send
from halfmoon.plugin import dead_letter_topic, retry_topic

TIMES = "RECONSUME_TIME"
OF = "RETRY_OF"
ORIGINAL_TOPIC = "RETRY_TOPIC"


class Nack:
    """Negatively acknowledges records of one consumer group.

    `producer`: a confluent_kafka.Producer, kafka.KafkaProducer or aiokafka.AIOKafkaProducer that sends bytes as they
    are. `topic`: the group's retry topic; subscribe to it, beside the topics that the group consumes. `dead_letters`:
    the group's dead-letter topic.
    """

    def __init__(self, group: str, producer: Any) -> None:
        self.topic = retry_topic(group)
        self.dead_letters = dead_letter_topic(group)
        self._producer = producer

    def __call__(
        self, record: Any, *, delay_ms: int | None = None, level: int | None = None, max_times: int | None = None
    ) -> Any:
        """Have the record redelivered. Returns what the producer's own call returns (a future, or None with
        confluent-kafka).

        `delay_ms` or `level` (1 to 18) in place of the default delay; `max_times` in place of the broker's limit.
        Commit the record's offset only when the broker has acknowledged this Produce.
        """
        more: list[Header] = []
        if delay_ms is not None:
            more.append(("TIMER_DELAY_MS", str(delay_ms).encode()))
        if level is not None:
            more.append(("DELAY", str(level).encode()))
        if max_times is not None:
            more.append(("MAX_RECONSUME_TIMES", str(max_times).encode()))
        return self._send(consumed(record), more)

    def dead_letter(self, record: Any) -> Any:
        """Dead-letter the record at once; returns as the call does."""
        return self._send(consumed(record), [("DELAY", b"-1")])

    def give_up(self, record: Any) -> Any:
        """The name of `dead_letter` until 0.1; goes with the next version."""
        warnings.warn("give_up is called dead_letter now", DeprecationWarning, stacklevel=2)
        return self.dead_letter(record)

    def _send(self, record: Consumed, more: Iterable[Header]) -> Any:
        place = f"{record.topic}/{record.partition}/{record.offset}".encode()
        headers = [header for header in record.headers if header[0] != OF]
        headers += [(OF, place), *more]
        return send(self._producer, self.topic, record.value, record.key, headers, None)


def attempts(record: Any) -> int:
    """How often the record was negatively acknowledged before."""
    for name, content in consumed(record).headers:
        if name == TIMES and content is not None:
            return int(content)
    return 0


def original_topic(record: Any) -> str:
    """The topic that the record was produced to."""
    there = consumed(record)
    for name, content in there.headers:
        if name == ORIGINAL_TOPIC and content is not None:
            return content.decode()
    return there.topic
