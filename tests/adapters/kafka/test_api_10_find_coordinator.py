"""FindCoordinator: this node, for groups; a clear no for anything else."""

from __future__ import annotations

import pytest
from fake_admin_broker import Client, FakeAdminBroker, versions

from halfmoon.adapters.kafka.protocol import FindCoordinatorRequest
from halfmoon.services.common.services import Services
from halfmoon.services.groups.service import GroupService
from halfmoon.services.transactions.service import TransactionService

KEY = 10


def client_of(*kinds: type) -> Client:
    """Of a broker with these services."""
    broker = FakeAdminBroker()
    broker.services = Services(object.__new__(kind) for kind in kinds)
    return Client(broker)


@pytest.fixture
def client() -> Client:
    return client_of(GroupService, TransactionService)


def results(client, version, key_type, *keys):
    """(key, error, node, host, port, message) of each key."""
    if version >= 4:
        request = FindCoordinatorRequest(key_type=key_type, coordinator_keys=list(keys))
        coordinators = client.send(KEY, version, request).answer.coordinators
        return [(c.key, c.error_code, c.node_id, c.host, c.port, c.error_message) for c in coordinators]
    found = []
    for key in keys:
        request = FindCoordinatorRequest(key=key, **({"key_type": key_type} if version else {}))
        answer = client.send(KEY, version, request).answer
        message = answer.error_message if version else None
        found.append((key, answer.error_code, answer.node_id, answer.host, answer.port, message))
    return found


@pytest.mark.parametrize("version", versions(KEY))
def test_groups_are_looked_after_here(client, version):
    node = FakeAdminBroker.node_id
    assert results(client, version, 0, "a", "") == [(k, 0, node, "broker.test", 9093, None) for k in ("a", "")]


@pytest.mark.parametrize("version", range(1, 7))
def test_transactional_ids_are_looked_after_here(client, version):
    node = FakeAdminBroker.node_id
    assert results(client, version, 1, "x") == [("x", 0, node, "broker.test", 9093, None)]


@pytest.mark.parametrize(("key_type", "code"), [(2, 42), (99, 42)])
@pytest.mark.parametrize("version", range(1, 7))
def test_other_coordinators_are_refused(client, version, key_type, code):
    [(_, error_code, node_id, host, port, message)] = results(client, version, key_type, "x")
    assert (error_code, node_id, host, port) == (code, -1, "", -1)
    assert message


@pytest.mark.parametrize("version", range(1, 7))
@pytest.mark.parametrize(("key_type", "other", "code"), [(0, TransactionService, 35), (1, GroupService, 53)])
def test_without_the_service_there_is_no_coordinator(version, key_type, other, code):
    [(_, error_code, node_id, host, port, message)] = results(client_of(other), version, key_type, "x")
    assert (error_code, node_id, host, port) == (code, -1, "", -1)
    assert "is off in broker.yaml" in message
