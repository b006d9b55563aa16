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
    timestamp_ms: int
    """Unix ms; −1 where the record has none."""


def consumed(record: Any) -> Consumed:
    if callable(record.topic):  # confluent_kafka.Message
        return Consumed(
            record.topic(), record.partition(), record.offset(), record.key(), record.value(),
            list(record.headers() or ()), record.timestamp()[1],
        )  # fmt: skip
    timestamp_ms: int | None = getattr(record, "timestamp", None)  # programs make records of their own, with less
    return Consumed(
        record.topic, record.partition, record.offset, record.key, record.value, list(record.headers or ()),
        -1 if timestamp_ms is None else timestamp_ms,
    )  # fmt: skip
