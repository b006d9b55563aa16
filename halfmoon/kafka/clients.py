"""A consumed record, as confluent-kafka, kafka-python and aiokafka give it."""

from __future__ import annotations

from typing import Any, NamedTuple

Header = tuple[str, bytes | None]


class Consumed(NamedTuple):
    """A record as any of the three clients gives it."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: list[Header]


def consumed(record: Any) -> Consumed:
    if callable(record.topic):  # confluent_kafka.Message
        return Consumed(
            record.topic(), record.partition(), record.offset(), record.key(), record.value(),
            list(record.headers() or ()),
        )  # fmt: skip
    return Consumed(record.topic, record.partition, record.offset, record.key, record.value, list(record.headers or ()))
