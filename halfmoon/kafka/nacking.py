"""Negative acknowledgement of single records, for users of confluent-kafka, kafka-python and aiokafka.

The broker redelivers a record that is negatively acknowledged (nacked) after a delay, and dead-letters it after a
number of attempts. One Produce is all it takes; the rest is the broker's work (docs/retry.md). So any client in any
language can do the same.

    nack = Nack("billing", producer)
    for record in consumer:            # subscribed to "orders" and nack.topic, without auto-commit
        try:
            handle(record)
        except Exception as error:
            # As the group's retry policy says, or delay level 3 the first time, then 4, 5, …; raises if the broker
            # refuses it.
            nack(record, error=error).result(10)
        consumer.commit()
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from halfmoon.error_classes import CLASS_HEADER, MESSAGE_HEADER, error_classes, error_message
from halfmoon.kafka.clients import Consumed, Header, consumed
from halfmoon.kafka.sending import Helper
from halfmoon.plugin import dead_letter_topic, retry_topic

TIMES = "RECONSUME_TIME"
OF = "RETRY_OF"
TIMESTAMP = "RETRY_TIMESTAMP"
"""From which the record's TTL counts, if it has one."""
POLICY = "RETRY_POLICY"
ORIGINAL_TOPIC = "RETRY_TOPIC"
MOST_DIGITS = 9


class Nack(Helper):
    """Negatively acknowledges records of one consumer group.

    `producer`: a confluent_kafka.Producer, kafka.KafkaProducer or aiokafka.AIOKafkaProducer that sends bytes as they
    are. `topic`: the group's retry topic; subscribe to it, beside the topics that the group consumes. `dead_letters`:
    the group's dead-letter topic. The retry topic is created when this is made (with aiokafka, as soon as the producer
    has started). Raises the client's error where that is not possible.
    """

    def __init__(self, group: str, producer: Any) -> None:
        super().__init__(producer)
        self.topic = retry_topic(group)
        self.dead_letters = dead_letter_topic(group)
        self._sending.provide(self.topic)

    def __call__(
        self,
        record: Any,
        *,
        delay_ms: int | None = None,
        level: int | None = None,
        max_times: int | None = None,
        error: BaseException | None = None,
        policy: Mapping[str, Any] | None = None,
    ) -> Any:
        """Have the record redelivered. Returns a `Sent`, whose `result(timeout)` waits until the broker has stored this
        and raises NotStoredError if it refuses; with aiokafka a task, to be awaited. Commit the record's offset only
        then.

        `delay_ms` or `level` (1 to 18) in place of the default delay; `max_times` in place of the broker's limit.
        `error`: why. Where the group's retry policy says that it is not retryable, the broker dead-letters the record
        at once; a dead letter says what the error was. `policy`: a retry policy for this record, from now on, in the
        words of broker.yaml: `{"steps": ["10s", "1m"], "jitter": 0.2}` (docs/retry.md).
        """
        more: list[Header] = []
        if delay_ms is not None:
            more.append(("TIMER_DELAY_MS", str(delay_ms).encode()))
        if level is not None:
            more.append(("DELAY", str(level).encode()))
        if max_times is not None:
            more.append(("MAX_RECONSUME_TIMES", str(max_times).encode()))
        if policy is not None:
            more.append((POLICY, msgspec.json.encode(policy)))
        return self._back(consumed(record), [*more, *_of_error(error)])

    def dead_letter(self, record: Any, *, error: BaseException | None = None) -> Any:
        """Dead-letter the record at once; returns as the call does. `error`: why."""
        return self._back(consumed(record), [("DELAY", b"-1"), *_of_error(error)])

    def give_up(self, record: Any) -> Any:
        """The name of `dead_letter` until 0.1; goes with the next version."""
        warnings.warn("give_up is called dead_letter now", DeprecationWarning, stacklevel=2)
        return self.dead_letter(record)

    def _back(self, record: Consumed, more: Iterable[Header]) -> Any:
        place = f"{record.topic}/{record.partition}/{record.offset}"
        said = {OF, TIMESTAMP, *(name for name, _ in more)}
        headers = [header for header in record.headers if header[0] not in said]
        headers.append((OF, place.encode()))
        if record.timestamp_ms >= 0:
            headers.append((TIMESTAMP, b"%d" % record.timestamp_ms))
        headers += more
        what = f"the negative acknowledgement of {place}"
        return self._send(what, self.topic, record.value, record.key, headers, None)


def _of_error(error: BaseException | None) -> list[Header]:
    if error is None:
        return []
    return [(CLASS_HEADER, error_classes(error).encode()), (MESSAGE_HEADER, error_message(error).encode())]


def attempts(record: Any) -> int:
    """How often the record was negatively acknowledged before; 0 where the header, which any program can write, says no
    number."""
    for name, content in consumed(record).headers:
        if name == TIMES and content is not None:
            return int(content) if len(content) <= MOST_DIGITS and content.isdigit() else 0
    return 0


def original_topic(record: Any) -> str:
    """The topic that the record was produced to."""
    there = consumed(record)
    for name, content in there.headers:
        if name == ORIGINAL_TOPIC and content is not None:
            return content.decode(errors="replace")
    return there.topic
