"""Metadata: what is told of topics, in every version, encoded by hand and read by its definition."""

from __future__ import annotations

from uuid import UUID

import pytest
from fake_admin_broker import FakeAdminBroker, versions

from halfmoon.adapters.kafka.operations import CLUSTER_OPERATIONS, TOPIC_OPERATIONS
from halfmoon.adapters.kafka.protocol import MetadataRequest, MetadataResponse
from halfmoon.core.features import Feature, Features, TopicPolicy
from halfmoon.errors import BrokerError, Fault

KEY = 3
Topic = MetadataRequest.MetadataRequestTopic
NODE = FakeAdminBroker.node_id


def named(*names: str | None) -> list[object]:
    return [Topic(name=name, topic_id=UUID(int=0)) for name in names]


def by_id(*ids: bytes) -> list[object]:
    return [Topic(name=None, topic_id=UUID(bytes=topic_id)) for topic_id in ids]


@pytest.fixture
def broker():
    broker = FakeAdminBroker(topics__auto_create=False)
    broker.add("one", 1)
    broker.add("many", 20)
    broker.add("hidden", 1, internal=True)
    return broker


@pytest.mark.parametrize("version", versions(KEY))
def test_topics_by_name(client, version):
    answer = client.ask(KEY, version, topics=named("one", "many", "hidden"))
    assert [(b.node_id, b.host, b.port, b.rack) for b in answer.brokers] == [(NODE, "broker.test", 9093, None)]
    if version >= 1:
        assert answer.controller_id == NODE
    if version >= 2:
        assert answer.cluster_id == client.broker.cluster_id
    assert [(t.error_code, t.name, len(t.partitions)) for t in answer.topics] == [
        (0, "one", 1),
        (0, "many", 20),
        (0, "hidden", 1),
    ]
    if version >= 1:
        assert [t.is_internal for t in answer.topics] == [False, False, True]
    if version >= 10:
        assert [t.topic_id.bytes for t in answer.topics] == [client.broker.topic(t.name).id for t in answer.topics]
    many = answer.topics[1].partitions
    assert [p.partition_index for p in many] == list(range(20))
    assert all((p.error_code, p.leader_id, p.replica_nodes, p.isr_nodes) == (0, NODE, [NODE], [NODE]) for p in many)
    if version >= 5:
        assert all(p.offline_replicas == [] for p in many)
    if version >= 7:
        assert {p.leader_epoch for p in many} == {client.broker.generation}
    assert answer.error_code == 0


@pytest.mark.parametrize("version", versions(KEY))
def test_parity_with_the_general_encoder(client, version):
    """Byte for byte what the definition says of the same answer."""
    pending = client.send(KEY, version, MetadataRequest(topics=named("one", "many", "missing")))
    answer = pending.answer
    assert isinstance(answer, MetadataResponse.type)
    assert bytes(answer.encode(version=version)) == pending.raw


@pytest.mark.parametrize("version", versions(KEY))
def test_null_asks_for_all_that_are_not_internal(client, version):
    # Version 0 has no null: there an empty list asks for all.
    answer = client.ask(KEY, version, topics=None if version else [])
    assert [t.name for t in answer.topics] == ["many", "one"]


@pytest.mark.parametrize("version", versions(KEY))
def test_an_empty_list_asks_for_brokers_only_but_in_version_0_for_all(client, version):
    answer = client.ask(KEY, version, topics=[])
    assert [t.name for t in answer.topics] == (["many", "one"] if version == 0 else [])
    assert len(answer.brokers) == 1


@pytest.mark.parametrize("version", versions(KEY))
@pytest.mark.parametrize(("name", "code"), [("missing", 3), ("", 17), ("a/b", 17), ("..", 17), ("x" * 250, 17)])
def test_topics_that_are_not_there(client, version, name, code):
    answer = client.ask(KEY, version, topics=named(name, "one"))
    assert [(t.error_code, t.name) for t in answer.topics] == [(code, name), (0, "one")]
    assert answer.topics[0].partitions == []


def test_a_name_given_twice_is_answered_once(client):
    assert len(client.ask(KEY, 12, topics=named("one", "one")).topics) == 1


@pytest.mark.parametrize("version", [12, 13])
def test_topics_by_id(client, version):
    known = client.broker.topic("many").id
    answer = client.ask(KEY, version, topics=by_id(known, b"?" * 16))
    assert [(t.error_code, t.name, t.topic_id.bytes) for t in answer.topics] == [
        (0, "many", known),
        (100, None, b"?" * 16),
    ]


@pytest.mark.parametrize("version", [10, 11])
def test_ids_are_refused_before_version_12(client, version):
    topic_id = client.broker.topic("one").id
    answer = client.ask(KEY, version, topics=[Topic(name="one", topic_id=UUID(bytes=topic_id))])
    assert [t.error_code for t in answer.topics] == [42]


@pytest.mark.parametrize("version", [10, 12])
def test_neither_name_nor_id(client, version):
    assert [t.error_code for t in client.ask(KEY, version, topics=named(None)).topics] == [42]


@pytest.mark.parametrize("version", range(8, 14))
def test_authorized_operations(client, version):
    asked = client.ask(
        KEY,
        version,
        topics=named("one"),
        include_topic_authorized_operations=True,
        include_cluster_authorized_operations=True,
    )
    assert asked.topics[0].authorized_operations == TOPIC_OPERATIONS
    if version <= 10:
        assert asked.authorized_operations == CLUSTER_OPERATIONS
    silent = client.ask(KEY, version, topics=named("one"))
    assert silent.topics[0].authorized_operations is None
    assert silent.authorized_operations is None


class TestAutoCreation:
    @pytest.fixture
    def broker(self):
        return FakeAdminBroker(topics__auto_create=True, topics__partitions=3)

    @pytest.mark.parametrize("version", versions(KEY))
    def test_answers_once_the_log_has_the_topic(self, client, broker, version):
        pending = client.send(KEY, version, MetadataRequest(topics=named("new", "newer", "a b")))
        assert pending.answer is None
        broker.flush()
        assert [(t.error_code, t.name, len(t.partitions)) for t in pending.answer.topics] == [
            (0, "new", 3),
            (0, "newer", 3),
            (17, "a b", 0),
        ]
        assert [change[1] for change in broker.written] == ["new", "newer"]

    def test_not_if_the_request_forbids_it(self, client, broker):
        answer = client.ask(KEY, 4, topics=named("new"), allow_auto_topic_creation=False)
        assert [t.error_code for t in answer.topics] == [3]
        assert broker.written == []

    def test_a_log_that_takes_no_writes(self, client, broker):
        broker.refuse = BrokerError(Fault.KAFKA_STORAGE_ERROR)
        assert [t.error_code for t in client.ask(KEY, 9, topics=named("new")).topics] == [56]

    def test_a_log_that_loses_the_topic(self, client, broker):
        broker.add("old")
        pending = client.send(KEY, 9, MetadataRequest(topics=named("old", "new")))
        broker.flush(BrokerError(Fault.KAFKA_STORAGE_ERROR))
        assert [(t.name, t.error_code) for t in pending.answer.topics] == [("old", 0), ("new", 56)]


def test_what_is_remembered_follows_the_topic(client, broker):
    """A grown topic, a new leader epoch and a recreated namesake must not be answered from old bytes."""
    before = client.ask(KEY, 12, topics=named("one")).topics[0]
    broker.topic("one").grow(2)
    broker.generation += 1
    broker.topic("one").id = b"another topic id"
    after = client.ask(KEY, 12, topics=named("one")).topics[0]
    assert (len(before.partitions), len(after.partitions)) == (1, 2)
    assert after.partitions[0].leader_epoch == before.partitions[0].leader_epoch + 1
    assert after.topic_id.bytes == b"another topic id"


class TestProvidedTopics:
    """What a feature provides is made although neither broker.yaml nor the client creates topics."""

    @pytest.fixture
    def broker(self):
        broker = FakeAdminBroker(topics__auto_create=False)
        provides = TopicPolicy(provides=lambda name: name.startswith("retry."))
        broker.features = Features([Feature("other"), Feature("retry", topics=provides)])
        return broker

    @pytest.mark.parametrize("version", versions(KEY))
    def test_are_made_when_asked_for(self, client, broker, version):
        request = MetadataRequest(topics=named("retry.billing", "other", "retry.a b"))
        if version >= 4:
            request.allow_auto_topic_creation = False
        pending = client.send(KEY, version, request)
        broker.flush()
        assert [(t.error_code, t.name) for t in pending.answer.topics] == [
            (0, "retry.billing"),
            (3, "other"),
            (17, "retry.a b"),
        ]
        assert [change[1] for change in broker.written] == ["retry.billing"]

    def test_not_by_id(self, client, broker):
        answer = client.ask(KEY, 12, topics=by_id(b"retry.0123456789"))
        assert [t.error_code for t in answer.topics] == [100]
        assert broker.written == []
