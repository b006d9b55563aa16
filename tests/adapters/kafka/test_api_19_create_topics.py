"""CreateTopics: what may be created, and when it is said."""

from __future__ import annotations

import pytest
from fake_admin_broker import FakeAdminBroker, versions

from halfmoon.adapters.kafka.protocol import CreateTopicsRequest
from halfmoon.errors import BrokerError, Fault

KEY = 19
Topic = CreateTopicsRequest.CreatableTopic
NODE = FakeAdminBroker.node_id


@pytest.fixture
def broker():
    broker = FakeAdminBroker(topics__partitions=6)
    broker.add("old")
    return broker


def wanted(name="new", partitions=-1, factor=-1, assignments=(), **configs: str | None) -> object:
    return Topic(
        name=name,
        num_partitions=partitions,
        replication_factor=factor,
        assignments=[
            Topic.CreatableReplicaAssignment(partition_index=index, broker_ids=brokers)
            for index, brokers in assignments
        ],
        configs=[Topic.CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()],
    )


@pytest.mark.parametrize("version", versions(KEY))
def test_created_once_the_log_has_them(client, broker, version):
    request = CreateTopicsRequest(
        topics=[wanted("a", 3, 1, retention_ms="1000"), wanted("b"), wanted("old")], timeout_ms=1000
    )
    pending = client.send(KEY, version, request)
    assert pending.answer is None
    broker.flush()
    a, b, old = pending.answer.topics
    assert [(t.name, t.error_code) for t in (a, b, old)] == [("a", 0), ("b", 0), ("old", 36)]
    assert broker.written == [("create", "a", 3, {"retention.ms": "1000"}), ("create", "b", 6, {})]
    if version >= 1:
        assert (a.error_message, old.error_message) == (None, "topic 'old' already exists")
    if version >= 5:
        assert [(t.num_partitions, t.replication_factor) for t in (a, b, old)] == [(3, 1), (6, 1), (-1, -1)]
        configs = {c.name: (c.value, c.config_source, c.read_only) for c in a.configs}
        assert configs["retention.ms"] == ("1000", 1, False)
        assert configs["cleanup.policy"] == ("delete", 5, False)
        assert configs["segment.bytes"] == (str(1 << 30), 5, False)
        assert old.configs == []
    if version >= 7:
        assert [t.topic_id and t.topic_id.bytes for t in (a, old)] == [broker.topic("a").id, None]


@pytest.mark.parametrize("version", [v for v in versions(KEY) if v >= 1])
def test_validate_only_changes_nothing(client, broker, version):
    answer = client.ask(KEY, version, topics=[wanted(), wanted("bad", factor=3)], validate_only=True)
    assert [t.error_code for t in answer.topics] == [0, 38]
    assert broker.written == []
    if version >= 5:
        assert answer.topics[0].num_partitions == 6
    if version >= 7:
        assert answer.topics[0].topic_id is None


@pytest.mark.parametrize(
    ("topic", "code", "says"),
    [
        (wanted(""), 17, "empty"),
        (wanted("a b"), 17, "'a b'"),
        (wanted("x" * 250), 17, "249"),
        (wanted("old"), 36, "already exists"),
        (wanted(partitions=0), 37, ""),
        (wanted(partitions=-2), 37, ""),
        (wanted(partitions=10_001), 37, ""),
        (wanted(factor=0), 38, "single node"),
        (wanted(factor=2), 38, "single node"),
        (wanted(factor=-2), 38, "single node"),
        (wanted(retention_ms=None), 40, "retention.ms"),
        (wanted(retention_ms="soon"), 40, "retention.ms"),
        (wanted(no_such_config="1"), 40, "no.such.config"),
        (wanted(cleanup_policy="shrink"), 40, "compact"),
        (wanted(segment_bytes="1000000"), 40, "segment.bytes"),
        (wanted(partitions=2, assignments=[(0, [NODE])]), 42, "must be -1"),
        (wanted(factor=1, assignments=[(0, [NODE])]), 42, "must be -1"),
        (wanted(assignments=[(0, [NODE]), (0, [NODE])]), 39, "each once"),
        (wanted(assignments=[(1, [NODE])]), 39, "0, 1, 2"),
        (wanted(assignments=[(0, [])]), 39, "single node"),
        (wanted(assignments=[(0, [NODE, 8])]), 39, "single node"),
        (wanted(assignments=[(0, [8])]), 39, "single node"),
    ],
)
def test_refusals(client, broker, topic, code, says):
    (result,) = client.ask(KEY, 7, topics=[topic]).topics
    assert result.error_code == code
    assert says in result.error_message
    assert broker.written == []


def test_manual_assignment_to_this_node(client, broker):
    answer = client.ask(KEY, 7, topics=[wanted(assignments=[(1, [NODE]), (0, [NODE])])])
    assert [(t.error_code, t.num_partitions) for t in answer.topics] == [(0, 2)]
    assert broker.written == [("create", "new", 2, {})]


def test_a_name_given_twice_is_answered_once(client, broker):
    answer = client.ask(KEY, 7, topics=[wanted("twice"), wanted("once"), wanted("twice")])
    assert [(t.name, t.error_code) for t in answer.topics] == [("once", 0), ("twice", 42)]
    assert [change[1] for change in broker.written] == ["once"]


def test_a_log_that_loses_them(client, broker):
    pending = client.send(KEY, 7, CreateTopicsRequest(topics=[wanted("a"), wanted("old")]))
    broker.flush(BrokerError(Fault.KAFKA_STORAGE_ERROR, "the disk broke"))
    assert [(t.error_code, t.error_message) for t in pending.answer.topics] == [
        (56, "the disk broke"),
        (56, "the disk broke"),  # nothing is told of what the failed log may have lost, too
    ]


def test_a_topic_exists_once_its_creation_is_durable(client, broker):
    """Who asks again, since the first answer was lost, is not told "exists" of what a power loss would take away."""
    client.send(KEY, 7, CreateTopicsRequest(topics=[wanted("a")]))
    again = client.send(KEY, 7, CreateTopicsRequest(topics=[wanted("a")]))
    assert again.answer is None
    broker.flush()
    assert again.answer.topics[0].error_code == 36
