"""GetTelemetrySubscriptions and PushTelemetry: nothing is asked of clients, whatever subscriptions say."""

from __future__ import annotations

import uuid

import pytest
from fake_admin_broker import Client, FakeAdminBroker

GET, PUSH = 71, 72


@pytest.fixture
def client():
    broker = FakeAdminBroker()
    broker.client_metrics.alter("m", {"metrics": "*", "interval.ms": "1000"})
    return Client(broker)


def test_a_client_is_given_an_id_which_it_keeps_and_asked_for_no_metrics(client):
    first, other = client.ask(GET, 0, client_instance_id=None), client.ask(GET, 0, client_instance_id=None)
    assert first.client_instance_id not in (None, other.client_instance_id)
    again = client.ask(GET, 0, client_instance_id=first.client_instance_id)
    assert again.client_instance_id == first.client_instance_id
    for answer in (first, again):
        assert answer.error_code == 0
        assert list(answer.requested_metrics) == []  # an empty name would ask for all
        assert answer.push_interval_ms == 300_000


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"terminating": True, "metrics": b""}, 0),
        ({"metrics": b"otlp"}, 117),
        ({"subscription_id": 5, "metrics": b""}, 117),
        ({"client_instance_id": None, "metrics": b""}, 42),
    ],
)
def test_a_push(client, fields, error):
    told = client.ask(GET, 0, client_instance_id=None)
    push = {"client_instance_id": uuid.uuid4(), "subscription_id": told.subscription_id, "terminating": False}
    assert client.ask(PUSH, 0, compression_type=0, **{**push, **fields}).error_code == error
