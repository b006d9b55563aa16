"""A group of real consumers on a real broker, sharing a topic by a strategy of ours."""

from __future__ import annotations

from typing import Any

import pytest
from kafka import KafkaConsumer, KafkaProducer
from kafka.admin import KafkaAdminClient, NewTopic

import halfmoon.kafka

DEADLINE_POLLS = 200


@pytest.mark.parametrize("strategy", ["averagely", "sticky"])
def test_two_consumers_share_a_topic(halfmoon_broker: Any, strategy: str) -> None:
    servers, topic = halfmoon_broker.bootstrap_servers, f"assigned-{strategy}"
    admin = KafkaAdminClient(bootstrap_servers=servers)
    admin.create_topics([NewTopic(topic, num_partitions=6, replication_factor=1)])
    admin.close()
    producer = KafkaProducer(bootstrap_servers=servers)
    for number in range(60):
        producer.send(topic, str(number).encode(), partition=number % 6)
    producer.flush()
    producer.close()

    consumers = [
        KafkaConsumer(
            topic,
            bootstrap_servers=servers,
            client_id=name,
            group_id=f"readers-{strategy}",
            auto_offset_reset="earliest",
            partition_assignment_strategy=[halfmoon.kafka.assignor(strategy)],
        )
        for name in ("a", "b")
    ]
    try:
        seen: set[bytes] = set()
        for _ in range(DEADLINE_POLLS):
            for consumer in consumers:
                for records in consumer.poll(timeout_ms=50).values():
                    seen.update(record.value for record in records)
            owned = [sorted(p.partition for p in consumer.assignment()) for consumer in consumers]
            if owned == [[0, 1, 2], [3, 4, 5]] and len(seen) == 60:
                break
        assert owned == [[0, 1, 2], [3, 4, 5]]
        assert seen == {str(number).encode() for number in range(60)}
    finally:
        for consumer in consumers:
            consumer.close()
