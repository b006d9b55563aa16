"""A kit for each client, and admin requests that do not depend on it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.clients.polling import until
from tests.interop.transactions.aio import AioKit
from tests.interop.transactions.confluent import ConfluentKit
from tests.interop.transactions.java import JavaKit
from tests.interop.transactions.kafka_python import KafkaPythonKit
from tests.interop.transactions.kit import Kit

LATER = [JavaKit, AioKit, KafkaPythonKit]
"""Only in `make interop`: with all of them the scenarios take two minutes."""
KITS = [ConfluentKit, *(pytest.param(kit, marks=pytest.mark.interop) for kit in LATER)]


@pytest.fixture(params=KITS, ids=[kit.name for kit in (ConfluentKit, *LATER)])
def kit(request: pytest.FixtureRequest, bootstrap_servers: str) -> Iterator[Kit]:
    if request.param is JavaKit:
        made: Kit = JavaKit(bootstrap_servers, request.getfixturevalue("jvm"))
    else:
        made = request.param(bootstrap_servers)
    yield made
    made.close()


@pytest.fixture
def committed(admin: AdminClient) -> Callable[[str, str, int], dict[int, int]]:
    """`committed(group, topic, partitions)`: what the group has committed, by partition; −1001 where nothing."""

    def ask(group: str, topic: str, partitions: int) -> dict[int, int]:
        wanted = ConsumerGroupTopicPartitions(group, [TopicPartition(topic, number) for number in range(partitions)])

        def answered() -> dict[int, int] | None:
            answer = admin.list_consumer_group_offsets([wanted], require_stable=True)[group].result(30)
            # Where a transaction that has such an offset is just ending: UNSTABLE_OFFSET_COMMIT.
            unstable = any(found.error is not None for found in answer.topic_partitions)
            return None if unstable else {found.partition: found.offset for found in answer.topic_partitions}

        return until(answered)

    return ask
