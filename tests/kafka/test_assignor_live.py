"""A group of real consumers on a real broker, sharing a topic by a strategy of ours."""

from __future__ import annotations

import threading
from contextlib import closing
from typing import Any

import pytest
from kafka import KafkaConsumer, KafkaProducer
from kafka.admin import KafkaAdminClient, NewTopic

import halfmoon.kafka
from tests.clients.polling import DEADLINE_S, wait_for


class Member(threading.Thread):
    """A consumer in a thread of its own: a poll that ends while its group rebalances has it join once more, so two that
    take turns may go on like that for ever."""

    def __init__(self, servers: str, topic: str, name: str, strategy: str) -> None:
        super().__init__(name=name, daemon=True)
        self.seen: set[bytes] = set()
        self.owned: list[int] = []
        self.leaving = threading.Event()
        self._consumer = KafkaConsumer(
            topic,
            bootstrap_servers=servers,
            client_id=name,
            group_id=f"readers-{strategy}",
            auto_offset_reset="earliest",
            heartbeat_interval_ms=100,
            partition_assignment_strategy=[halfmoon.kafka.assignor(strategy)],
        )

    def run(self) -> None:
        with closing(self._consumer):
            while not self.leaving.is_set():
                for records in self._consumer.poll(timeout_ms=500).values():
                    self.seen.update(record.value for record in records)
                self.owned = sorted(place.partition for place in self._consumer.assignment())


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

    members = [Member(servers, topic, name, strategy) for name in ("a", "b")]
    everything = {str(number).encode() for number in range(60)}
    try:
        members[0].start()
        wait_for(lambda: members[0].owned == [0, 1, 2, 3, 4, 5])
        members[1].start()
        wait_for(lambda: members[1].owned and len(members[0].owned + members[1].owned) == 6)
        assert [member.owned for member in members] == [[0, 1, 2], [3, 4, 5]]
        wait_for(lambda: members[0].seen | members[1].seen == everything)
    finally:
        for member in members:
            member.leaving.set()
        for member in members:
            if member.is_alive():
                member.join(DEADLINE_S)
