"""All that is in some topics, as a client reads it."""

from __future__ import annotations

import time
from collections.abc import Mapping

from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

from tests.crash.load import QUICK
from tests.torture.histories import Record

READS_S = 90.0

Stored = dict[str, list[list[Record]]]
"""Topic → by partition, its records."""


def read_back(
    servers: str, topics: Mapping[str, int], isolation: str = "read_committed", *, limit_s: float = READS_S
) -> Stored:
    """`topics`: their numbers of partitions. Raises AssertionError where one is not read to its end."""
    consumer = Consumer(
        {
            "bootstrap.servers": servers, "group.id": "check", "enable.auto.commit": False,
            "enable.partition.eof": True, "isolation.level": isolation,
            # Partitions may be just moving, and librdkafka 2.16 may wait for a leader that is none any more.
            "topic.metadata.refresh.interval.ms": 2_000, **QUICK,
        }
    )  # fmt: skip
    found: Stored = {topic: [[] for _ in range(count)] for topic, count in topics.items()}
    left = {(topic, index) for topic, count in topics.items() for index in range(count)}
    consumer.assign([TopicPartition(topic, index, OFFSET_BEGINNING) for topic, index in left])
    until_s = time.monotonic() + limit_s
    while left:
        assert time.monotonic() < until_s, f"{sorted(left)} are not read to their ends, {isolation}"
        for message in consumer.consume(1_000, 0.2):
            place = message.topic() or "", message.partition() or 0
            if message.error() is not None:
                if message.error().name() == "_PARTITION_EOF":
                    left.discard(place)
                continue
            headers = {name: (value or b"").decode() for name, value in message.headers() or ()}
            value = (message.value() or b"").decode()
            record = Record(message.offset() or 0, value, message.timestamp()[1], headers)
            found[place[0]][place[1]].append(record)
    consumer.close()
    return found
