"""DescribeCluster: one node, which is everything."""

from __future__ import annotations

import pytest
from fake_admin_broker import Client, FakeAdminBroker, versions

from halfmoon.adapters.kafka.operations import CLUSTER_OPERATIONS

KEY = 60


@pytest.fixture
def client():
    return Client(FakeAdminBroker())


@pytest.mark.parametrize("version", versions(KEY))
@pytest.mark.parametrize("asked", [True, False])
def test_the_node(client, version, asked):
    answer = client.ask(KEY, version, include_cluster_authorized_operations=asked)
    assert (answer.error_code, answer.error_message, answer.endpoint_type) == (0, None, 1)
    assert (answer.cluster_id, answer.controller_id) == ("cluster-of-the-test", 7)
    assert [(b.broker_id, b.host, b.port, b.rack) for b in answer.brokers] == [(7, "broker.test", 9093, None)]
    assert answer.brokers[0].is_fenced is False
    assert answer.authorized_operations == (CLUSTER_OPERATIONS if asked else None)


@pytest.mark.parametrize("version", [v for v in versions(KEY) if v >= 1])
@pytest.mark.parametrize(("endpoint_type", "code"), [(2, 114), (0, 115), (9, 115)])
def test_other_endpoints(client, version, endpoint_type, code):
    answer = client.ask(KEY, version, endpoint_type=endpoint_type)
    assert (answer.error_code, answer.brokers) == (code, [])
    assert str(endpoint_type) in answer.error_message
