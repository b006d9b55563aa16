"""What confluent-kafka, kafka-python and aiokafka call the same thing: a consumed record, and sending one."""

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


def send(
    producer: Any, topic: str, value: bytes | None, key: bytes | None, headers: list[Header], partition: int | None
) -> Any:
    """What the producer's own call gives: None with confluent-kafka, a future with kafka-python, something to await
    that gives a future with aiokafka."""
    if hasattr(producer, "produce"):  # confluent-kafka
        where = {} if partition is None else {"partition": partition}
        return producer.produce(topic, value, key, headers=headers, **where)
    return producer.send(topic, value=value, key=key, headers=headers, partition=partition)
