"""DescribeTopicPartitions: pages of partitions, encoded by hand and read by its definition."""

from __future__ import annotations

import pytest
from fake_admin_broker import Client, FakeAdminBroker

from halfmoon.adapters.kafka.operations import TOPIC_BITS
from halfmoon.adapters.kafka.protocol import DescribeTopicPartitionsRequest

KEY = 75
Request = DescribeTopicPartitionsRequest
NODE = FakeAdminBroker.node_id
NOT_ASKED = -(2**31)


@pytest.fixture
def client():
    broker = FakeAdminBroker()
    broker.add("a", 3)
    broker.add("b", 200)
    broker.add("c", 1)
    broker.add("hidden", internal=True)
    return Client(broker)


def asking(*names: str, limit: int = 2000, cursor: tuple[str, int] | None = None) -> dict:
    return {
        "topics": [Request.TopicRequest(name=name) for name in names],
        "response_partition_limit": limit,
        "cursor": cursor and Request.Cursor(topic_name=cursor[0], partition_index=cursor[1]),
    }


def pages(answer) -> list[tuple[str, int, int, int]]:
    """Name, error, first partition, number of partitions."""
    return [
        (t.name, t.error_code, t.partitions[0].partition_index if t.partitions else -1, len(t.partitions))
        for t in answer.topics
    ]


def after(answer) -> tuple[str, int] | None:
    return answer.next_cursor and (answer.next_cursor.topic_name, answer.next_cursor.partition_index)


def test_a_topic(client):
    answer = client.ask(KEY, 0, **asking("hidden", "b"))
    assert [(t.name, t.is_internal, t.topic_id.bytes) for t in answer.topics] == [
        ("b", False, client.broker.topic("b").id),
        ("hidden", True, client.broker.topic("hidden").id),
    ]
    assert answer.topics[0].topic_authorized_operations == TOPIC_BITS == 3576
    for index, partition in enumerate(answer.topics[0].partitions):
        assert (partition.error_code, partition.partition_index) == (0, index)
        assert (partition.leader_id, partition.leader_epoch) == (NODE, client.broker.generation)
        assert partition.replica_nodes == partition.isr_nodes == [NODE]
        assert partition.eligible_leader_replicas == partition.last_known_elr == partition.offline_replicas == []


def test_parity_with_the_general_encoder(client):
    """Byte for byte what the definition says of the same answer."""
    for fields in (asking("a", "missing"), asking(limit=5)):
        pending = client.send(KEY, 0, Request(**fields))
        answer = pending.answer
        answer._header = None
        assert bytes(answer.encode(version=0)) == pending.raw


@pytest.mark.parametrize(
    ("fields", "expected", "cursor"),
    [
        (asking(), [("a", 0, 0, 3), ("b", 0, 0, 200), ("c", 0, 0, 1)], None),
        (asking("c", "a", "c"), [("a", 0, 0, 3), ("c", 0, 0, 1)], None),
        (asking(limit=3), [("a", 0, 0, 3)], ("b", 0)),
        (asking(limit=5), [("a", 0, 0, 3), ("b", 0, 0, 2)], ("b", 2)),
        (asking(limit=5, cursor=("b", 2)), [("b", 0, 2, 5)], ("b", 7)),
        (asking(limit=2000, cursor=("b", 198)), [("b", 0, 198, 2), ("c", 0, 0, 1)], None),
        (asking(limit=2, cursor=("b", 198)), [("b", 0, 198, 2)], ("c", 0)),
        (asking(limit=0), [("a", 0, 0, 1)], ("a", 1)),
        (asking(limit=-5), [("a", 0, 0, 1)], ("a", 1)),
        (asking("a", "b", cursor=("b", 199)), [("b", 0, 199, 1)], None),
        (asking("b", cursor=("b", 999)), [("b", 0, -1, 0)], None),
        (asking(cursor=("bb", 0)), [("c", 0, 0, 1)], None),
        (asking("missing", "a b", "a"), [("a", 0, 0, 3), ("a b", 17, -1, 0), ("missing", 3, -1, 0)], None),
        (asking("a", "c", cursor=("b", 0)), [("a", 42, -1, 0), ("c", 42, -1, 0)], None),
        (asking("a", cursor=("a", -1)), [("a", 42, -1, 0)], None),
        (asking(cursor=("a", -1)), [], None),
    ],
)
def test_pages(client, fields, expected, cursor):
    answer = client.ask(KEY, 0, **fields)
    assert pages(answer) == expected
    assert after(answer) == cursor


def test_no_page_is_larger_than_kafka_allows(client):
    client.broker.topic("b").grow(3000)
    answer = client.ask(KEY, 0, **asking("b", limit=1_000_000))
    assert (pages(answer), after(answer)) == ([("b", 0, 0, 2000)], ("b", 2000))


def test_following_the_cursor_shows_everything_once(client):
    seen: list[tuple[str, int]] = []
    cursor = None
    while True:
        answer = client.ask(KEY, 0, **asking(limit=7, cursor=cursor))
        seen += [(t.name, p.partition_index) for t in answer.topics for p in t.partitions]
        cursor = after(answer)
        if cursor is None:
            break
    assert seen == [(t.name, p.index) for t in client.broker.topics() if not t.internal for p in t.partitions]
