"""ListConfigResources: topics, the node, and groups and client metrics that were configured."""

from __future__ import annotations

import pytest
from fake_admin_broker import Client, FakeAdminBroker

KEY = 74
TOPIC, BROKER, CLIENT_METRICS, GROUP = 2, 4, 16, 32


@pytest.fixture
def client():
    broker = FakeAdminBroker()
    broker.add("b")
    broker.add("a")
    broker.add("hidden", internal=True)
    broker.group_configs.alter("g", {"share.isolation.level": "read_committed"})
    broker.client_metrics.alter("m", {"interval.ms": "1000"})
    return Client(broker)


@pytest.mark.parametrize(
    ("types", "expected"),
    [
        ([], [(TOPIC, "a"), (TOPIC, "b"), (BROKER, "7"), (8, "7"), (CLIENT_METRICS, "m"), (GROUP, "g")]),
        ([BROKER], [(BROKER, "7")]),
        ([TOPIC, CLIENT_METRICS], [(TOPIC, "a"), (TOPIC, "b"), (CLIENT_METRICS, "m")]),
        ([8, 16, 32], [(8, "7"), (CLIENT_METRICS, "m"), (GROUP, "g")]),
    ],
)
def test_listed(client, types, expected):
    answer = client.ask(KEY, 1, resource_types=types)
    assert answer.error_code == 0
    assert [(r.resource_type, r.resource_name) for r in answer.config_resources] == expected


def test_version_0_lists_client_metrics_only(client):
    answer = client.ask(KEY, 0)
    assert answer.error_code == 0
    assert [r.resource_name for r in answer.config_resources] == ["m"]


def test_an_unknown_type(client):
    answer = client.ask(KEY, 1, resource_types=[BROKER, 99])
    assert (answer.error_code, answer.config_resources) == (35, [])
