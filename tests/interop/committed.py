"""What a committed reader finds in a topic."""

from __future__ import annotations

import time

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, TopicPartition


def committed_values(servers: str, topic: str, partitions: int) -> list[str]:
    """All that a committed reader sees of a topic."""
    consumer = Consumer({
        "bootstrap.servers": servers, "group.id": f"{topic}-checks", "isolation.level": "read_committed",
        "enable.partition.eof": True, "enable.auto.commit": False,
    })  # fmt: skip
    consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in range(partitions)])
    found, ended = [], set()
    end = time.monotonic() + 60
    while len(ended) < partitions:
        assert time.monotonic() < end, f"{len(found)} records, {ended}"
        for message in consumer.consume(1_000, 0.5):
            if message.error() is None:
                found.append(message.value().decode())
            elif message.error().code() == KafkaError._PARTITION_EOF:
                ended.add(message.partition())
            else:
                raise KafkaException(message.error())
    consumer.close()
    return found
