"""CreatePartitions: making topics wider."""

from __future__ import annotations

import pytest
from fake_admin_broker import FakeAdminBroker, versions

from halfmoon.adapters.kafka.protocol import CreatePartitionsRequest
from halfmoon.errors import BrokerError, Fault

KEY = 37
Topic = CreatePartitionsRequest.CreatePartitionsTopic
NODE = FakeAdminBroker.node_id


@pytest.fixture
def broker():
    broker = FakeAdminBroker()
    broker.add("t", 2)
    broker.add("u", 1)
    broker.add("hidden", internal=True)
    return broker


def wanted(name: str, count: int, assignments: list[list[int]] | None = None) -> object:
    given = None if assignments is None else [Topic.CreatePartitionsAssignment(broker_ids=ids) for ids in assignments]
    return Topic(name=name, count=count, assignments=given)


@pytest.mark.parametrize("version", versions(KEY))
def test_wider_once_the_log_has_it(client, broker, version):
    request = CreatePartitionsRequest(topics=[wanted("t", 4), wanted("missing", 4), wanted("u", 2, [[NODE]])])
    pending = client.send(KEY, version, request)
    assert pending.answer is None
    broker.flush()
    assert [(r.name, r.error_code) for r in pending.answer.results] == [("t", 0), ("missing", 3), ("u", 0)]
    assert broker.written == [("grow", "t", 4), ("grow", "u", 2)]


@pytest.mark.parametrize("version", versions(KEY))
def test_validate_only(client, broker, version):
    answer = client.ask(KEY, version, topics=[wanted("t", 4), wanted("u", 1)], validate_only=True)
    assert [r.error_code for r in answer.results] == [0, 37]
    assert broker.written == []


@pytest.mark.parametrize(
    ("topic", "code", "says"),
    [
        (wanted("t", 2), 37, "would not be an increase"),
        (wanted("t", 1), 37, "would not be an increase"),
        (wanted("t", -1), 37, "would not be an increase"),
        (wanted("missing", 2), 3, "missing"),
        (wanted("hidden", 2), 17, "internal"),
        (wanted("t", 4, [[NODE]]), 39, "2 partition(s)"),
        (wanted("t", 3, []), 39, "0 are assigned"),
        (wanted("t", 3, [[8]]), 39, "single node"),
        (wanted("t", 3, [[]]), 39, "single node"),
        (wanted("t", 3, [[NODE, 8]]), 39, "single node"),
    ],
)
def test_refusals(client, broker, topic, code, says):
    (result,) = client.ask(KEY, 3, topics=[topic]).results
    assert result.error_code == code
    assert says in result.error_message
    assert broker.written == []


def test_a_name_given_twice_is_answered_once(client, broker):
    answer = client.ask(KEY, 3, topics=[wanted("t", 3), wanted("u", 2), wanted("t", 4)])
    assert [(r.name, r.error_code) for r in answer.results] == [("u", 0), ("t", 42)]
    assert broker.written == [("grow", "u", 2)]


def test_a_log_that_loses_it(client, broker):
    pending = client.send(KEY, 3, CreatePartitionsRequest(topics=[wanted("t", 3)]))
    broker.flush(BrokerError(Fault.KAFKA_STORAGE_ERROR, "the disk broke"))
    assert [(r.error_code, r.error_message) for r in pending.answer.results] == [(56, "the disk broke")]
