"""A group of real consumers on a real broker, sharing a topic by a strategy of ours."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import pytest
from kafka import KafkaProducer
from kafka.admin import KafkaAdminClient, NewTopic

import halfmoon.kafka
from tests.clients.kafka_python import Member
from tests.clients.polling import wait_for


@pytest.mark.parametrize("strategy", ["averagely", "sticky"])
def test_two_consumers_share_a_topic(halfmoon_broker: Any, strategy: str) -> None:
    servers, topic = halfmoon_broker.bootstrap_servers, f"assigned-{strategy}"
    with closing(KafkaAdminClient(bootstrap_servers=servers)) as admin:
        admin.create_topics([NewTopic(topic, num_partitions=6, replication_factor=1)])
    with closing(KafkaProducer(bootstrap_servers=servers)) as producer:
        for number in range(60):
            producer.send(topic, b"%d" % number, partition=number % 6)
        producer.flush()

    members: list[Member] = []

    def join(name: str) -> Member:
        assignors = [halfmoon.kafka.assignor(strategy)]
        group = f"readers-{strategy}"
        members.append(Member(servers, group, topic, client_id=name, partition_assignment_strategy=assignors))
        return members[-1]

    try:
        first = join("a")
        wait_for(lambda: first.owned == set(range(6)))
        second = join("b")
        wait_for(lambda: second.owned and len(first.owned) + len(second.owned) == 6)
        assert [first.owned, second.owned] == [{0, 1, 2}, {3, 4, 5}]
        everything = {b"%d" % number for number in range(60)}
        wait_for(lambda: first.values | second.values == everything)
    finally:
        for member in members:
            member.leave()
