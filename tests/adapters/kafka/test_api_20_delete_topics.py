"""DeleteTopics: by name and by id."""

from __future__ import annotations

from uuid import UUID

import pytest
from fake_admin_broker import FakeAdminBroker, versions

from halfmoon.adapters.kafka.protocol import DeleteTopicsRequest
from halfmoon.errors import BrokerError, Fault

KEY = 20
State = DeleteTopicsRequest.DeleteTopicState
ZERO = UUID(int=0)


@pytest.fixture
def broker():
    broker = FakeAdminBroker()
    for name in ("a", "b"):
        broker.add(name)
    broker.add("hidden", internal=True)
    return broker


def request(version: int, *names: str) -> DeleteTopicsRequest:
    if version < 6:
        return DeleteTopicsRequest(topic_names=list(names))
    return DeleteTopicsRequest(topics=[State(name=name, topic_id=ZERO) for name in names])


@pytest.mark.parametrize("version", versions(KEY))
def test_by_name_once_the_log_has_it(client, broker, version):
    ids = {name: broker.topic(name).id for name in ("a", "b")}
    pending = client.send(KEY, version, request(version, "a", "missing", "b"))
    assert pending.answer is None
    broker.flush()
    results = pending.answer.responses
    assert [(r.name, r.error_code) for r in results] == [("a", 0), ("missing", 3), ("b", 0)]
    assert broker.written == [("delete", "a"), ("delete", "b")]
    if version >= 5:
        assert [r.error_message for r in results] == [None, "topic 'missing' does not exist", None]
    if version >= 6:
        assert [r.topic_id and r.topic_id.bytes for r in results] == [ids["a"], None, ids["b"]]


def test_by_id(client, broker):
    known = broker.topic("a").id
    targets = [State(name=None, topic_id=UUID(bytes=found)) for found in (known, b"?" * 16)]
    results = client.ask(KEY, 6, topics=targets).responses
    assert [(r.name, r.topic_id.bytes, r.error_code) for r in results] == [("a", known, 0), (None, b"?" * 16, 100)]
    assert broker.written == [("delete", "a")]


def id_of(name: str) -> UUID:
    return UUID(bytes=name.encode().ljust(16, b"."))


@pytest.mark.parametrize(
    ("targets", "codes"),
    [
        ([(None, ZERO)], [42]),
        ([("a", id_of("a"))], [42]),
        ([("a", ZERO), ("a", ZERO)], [42]),
        ([(None, id_of("a")), (None, id_of("a"))], [42]),
        ([("hidden", ZERO)], [17]),
        ([(None, id_of("hidden"))], [17]),
        ([("", ZERO)], [3]),
    ],
)
def test_refusals(client, broker, targets, codes):
    answer = client.ask(KEY, 6, topics=[State(name=name, topic_id=topic_id) for name, topic_id in targets])
    assert [r.error_code for r in answer.responses] == codes
    assert broker.written == []


@pytest.mark.parametrize("id_first", [True, False])
def test_by_name_and_by_id_at_once_deletes_nothing(client, broker, id_first):
    targets = [State(name=None, topic_id=id_of("a")), State(name="a", topic_id=ZERO)]
    results = client.ask(KEY, 6, topics=targets if id_first else targets[::-1]).responses
    assert [r.error_code for r in results] == [42, 42]
    assert broker.written == []


def test_a_log_that_loses_it(client, broker):
    pending = client.send(KEY, 5, request(5, "a"))
    broker.flush(BrokerError(Fault.KAFKA_STORAGE_ERROR, "the disk broke"))
    assert [(r.error_code, r.error_message) for r in pending.answer.responses] == [(56, "the disk broke")]


@pytest.mark.parametrize("asked", [{"name": "a", "topic_id": None}, {"name": None, "topic_id": "a"}])
def test_a_topic_is_gone_once_its_deletion_is_durable(client, broker, asked):
    """Who asks again, since the first answer was lost, is not told "unknown" of what a power loss would bring back."""
    topic_id = UUID(bytes=broker.topic("a").id)
    client.send(KEY, 6, request(6, "a"))
    state = State(name=asked["name"], topic_id=topic_id if asked["topic_id"] else ZERO)
    again = client.send(KEY, 6, DeleteTopicsRequest(topics=[state]))
    assert again.answer is None
    broker.flush(BrokerError(Fault.KAFKA_STORAGE_ERROR, "the log accepts no more writes"))
    assert again.answer.responses[0].error_code == 56
    retried = client.send(KEY, 6, DeleteTopicsRequest(topics=[state]))
    broker.flush()
    assert retried.answer.responses[0].error_code == (3 if asked["name"] else 100)
