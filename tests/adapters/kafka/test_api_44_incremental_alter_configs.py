"""IncrementalAlterConfigs: the four operations. Refusals that AlterConfigs shares are tested there."""

from __future__ import annotations

import pytest
from fake_admin_broker import Client, FakeAdminBroker, versions

from halfmoon.adapters.kafka.protocol import IncrementalAlterConfigsRequest

KEY = 44
SET, DELETE, APPEND, SUBTRACT = range(4)
Resource = IncrementalAlterConfigsRequest.AlterConfigsResource


@pytest.fixture
def broker():
    broker = FakeAdminBroker()
    broker.add("t", retention_ms="5", max_message_bytes="1000")
    return broker


@pytest.fixture
def client(broker):
    return Client(broker)


def change(*operations: tuple[int, str, str | None]) -> list[object]:
    configs = [
        Resource.AlterableConfig(name=name, config_operation=operation, value=value)
        for operation, name, value in operations
    ]
    return [Resource(resource_type=2, resource_name="t", configs=configs)]


@pytest.mark.parametrize("version", versions(KEY))
@pytest.mark.parametrize(
    ("operations", "after"),
    [
        ([(SET, "retention.ms", "7")], {"retention.ms": "7", "max.message.bytes": "1000"}),
        ([(DELETE, "retention.ms", None)], {"max.message.bytes": "1000"}),
        ([(DELETE, "retention.ms", "ignored"), (DELETE, "max.message.bytes", None)], {}),
        (
            [(DELETE, "retention.ms", None), (SET, "retention.bytes", "9")],
            {"max.message.bytes": "1000", "retention.bytes": "9"},
        ),
    ],
)
def test_changes_only_what_is_named(client, broker, version, operations, after):
    (result,) = client.ask(KEY, version, resources=change(*operations)).responses
    assert (result.error_code, result.error_message) == (0, None)
    assert broker.topic("t").configs == after
    assert len(broker.written) == 1


@pytest.mark.parametrize("version", versions(KEY))
@pytest.mark.parametrize(
    "operations",
    [[(SET, "retention.ms", "5")], [(DELETE, "cleanup.policy", None)], []],
)
def test_what_changes_nothing_is_not_written(client, broker, version, operations):
    pending = client.send(KEY, version, IncrementalAlterConfigsRequest(resources=change(*operations)))
    assert pending.answer.responses[0].error_code == 0
    assert broker.written == []


def test_append_to_a_list_starts_from_what_holds(client, broker):
    (result,) = client.ask(KEY, 1, resources=change((APPEND, "cleanup.policy", "compact"))).responses
    assert result.error_code == 0
    assert broker.topic("t").configs["cleanup.policy"] == "delete,compact"


@pytest.mark.parametrize(
    ("operation", "name", "value", "code", "says"),
    [
        (APPEND, "cleanup.policy", "shrink", 40, "compact"),
        (SUBTRACT, "cleanup.policy", "delete", 40, "cleanup.policy"),
        (APPEND, "retention.ms", "7", 40, "not a list"),
        (SUBTRACT, "retention.ms", "7", 40, "not a list"),
        (APPEND, "cleanup.policy", None, 42, "cleanup.policy"),
        (DELETE, "no.such.config", None, 40, "no.such.config"),
        (4, "retention.ms", "7", 42, "operation type 4"),
        (-1, "retention.ms", "7", 42, "operation type -1"),
    ],
)
def test_refusals(client, broker, operation, name, value, code, says):
    (result,) = client.ask(KEY, 1, resources=change((operation, name, value))).responses
    assert result.error_code == code
    assert says in result.error_message
    assert broker.written == []
