"""ListConfigResources: topics and the node."""

from __future__ import annotations

import pytest
from fake_admin_broker import Client, FakeAdminBroker

KEY = 74
TOPIC, BROKER, CLIENT_METRICS = 2, 4, 16


@pytest.fixture
def client():
    broker = FakeAdminBroker()
    broker.add("b")
    broker.add("a")
    broker.add("hidden", internal=True)
    return Client(broker)


@pytest.mark.parametrize(
    ("types", "expected"),
    [
        ([], [(TOPIC, "a"), (TOPIC, "b"), (BROKER, "7")]),
        ([BROKER], [(BROKER, "7")]),
        ([TOPIC, CLIENT_METRICS], [(TOPIC, "a"), (TOPIC, "b")]),
        ([8, 16, 32], []),
    ],
)
def test_listed(client, types, expected):
    answer = client.ask(KEY, 1, resource_types=types)
    assert answer.error_code == 0
    assert [(r.resource_type, r.resource_name) for r in answer.config_resources] == expected


def test_version_0_lists_client_metrics_only(client):
    answer = client.ask(KEY, 0)
    assert (answer.error_code, answer.config_resources) == (0, [])


def test_an_unknown_type(client):
    answer = client.ask(KEY, 1, resource_types=[BROKER, 99])
    assert (answer.error_code, answer.config_resources) == (35, [])
