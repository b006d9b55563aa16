"""InitProducerId: ids for idempotent producers. Transactional ones: test_api_transactions.py."""

from __future__ import annotations

import pytest
from fake_admin_broker import FakeAdminBroker, versions

from halfmoon.adapters.kafka.protocol import InitProducerIdRequest
from halfmoon.errors import BrokerError, Fault

KEY = 22


@pytest.fixture
def broker():
    return FakeAdminBroker()


def told(answer) -> tuple[int, int, int]:
    return answer.error_code, answer.producer_id, answer.producer_epoch


@pytest.mark.parametrize("version", versions(KEY))
def test_an_id_once_the_log_has_reserved_it(client, broker, version):
    pending = client.send(KEY, version, InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=-1))
    assert pending.answer is None
    broker.flush()
    assert told(pending.answer) == (0, 1000, 0)


@pytest.mark.parametrize("version", [v for v in versions(KEY) if v >= 3])
@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"producer_id": 1000, "producer_epoch": 4}, (0, 1000, 0)),
        ({"producer_id": 1000, "producer_epoch": -1}, (42, -1, -1)),
        ({"producer_id": -1, "producer_epoch": 0}, (42, -1, -1)),
    ],
)
def test_a_producer_that_had_one(client, version, fields, expected):
    assert told(client.ask(KEY, version, transactional_id=None, **fields)) == expected


@pytest.mark.parametrize("version", versions(KEY))
def test_a_transactional_id_is_not_empty(client, broker, version):
    answer = client.ask(KEY, version, transactional_id="", transaction_timeout_ms=60_000)
    assert told(answer) == (42, -1, -1)
    assert broker.written == []


def test_a_log_that_takes_no_writes(client, broker):
    """COORDINATOR_LOAD_IN_PROGRESS: at another code for trouble of the broker, Java's client looks for the coordinator
    of a transactional id that it does not have."""
    broker.refuse = BrokerError(Fault.KAFKA_STORAGE_ERROR)
    assert told(client.ask(KEY, 4, transactional_id=None)) == (14, -1, -1)


def test_a_log_that_loses_the_reservation(client, broker):
    for fault in (Fault.KAFKA_STORAGE_ERROR, Fault.NOT_LEADER_OR_FOLLOWER):
        pending = client.send(KEY, 4, InitProducerIdRequest(transactional_id=None))
        broker.flush(BrokerError(fault))
        assert told(pending.answer) == (14, -1, -1)
