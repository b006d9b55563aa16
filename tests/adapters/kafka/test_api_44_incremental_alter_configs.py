"""IncrementalAlterConfigs: the four operations. Refusals that AlterConfigs shares are tested there."""

from __future__ import annotations

import logging

import pytest
from fake_admin_broker import FakeAdminBroker, versions

from halfmoon.adapters.kafka.protocol import IncrementalAlterConfigsRequest

KEY = 44
SET, DELETE, APPEND, SUBTRACT = range(4)
Resource = IncrementalAlterConfigsRequest.AlterConfigsResource


@pytest.fixture
def broker():
    broker = FakeAdminBroker()
    broker.add("t", retention_ms="5", max_message_bytes="1000")
    return broker


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
        (
            [(SUBTRACT, "cleanup.policy", "delete"), (SET, "segment.ms", "1")],
            {"cleanup.policy": "", "max.message.bytes": "1000", "retention.ms": "5", "segment.ms": "1"},
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
    [[(SET, "retention.ms", "5")], [(DELETE, "cleanup.policy", None)], [(DELETE, "segment.ms", None)], []],
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
        (SET, "cleanup.policy", "none", 40, "cleanup.policy"),
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


def changed(client, kind: int, name: str, *operations, validate_only: bool = False) -> tuple[int, str | None]:
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource
    configs = [
        resource.AlterableConfig(name=key, config_operation=operation, value=value)
        for operation, key, value in operations
    ]
    asked = [resource(resource_type=kind, resource_name=name, configs=configs)]
    (result,) = client.ask(KEY, 1, resources=asked, validate_only=validate_only).responses
    return result.error_code, result.error_message


def test_other_resources(client, broker):
    assert changed(client, 4, "7", (SET, "num.partitions", "5")) == (0, None)
    assert changed(client, 4, "", (SET, "num.partitions", "6")) == (0, None)
    assert broker.settings.topics.partitions == 5
    assert changed(client, 4, "7", (DELETE, "num.partitions", None)) == (0, None)
    assert broker.settings.topics.partitions == 6
    assert changed(client, 32, "g", (SET, "share.isolation.level", "read_committed")) == (0, None)
    assert broker.group_configs.overrides("g") == {"share.isolation.level": "read_committed"}
    assert changed(client, 16, "m", (SET, "metrics", "a"), (APPEND, "match", "client_id=b")) == (0, None)
    assert changed(client, 16, "m", (APPEND, "metrics", "b")) == (0, None)
    assert changed(client, 16, "m", (SUBTRACT, "metrics", "a")) == (0, None)
    assert broker.state.configs.overrides("client-metrics", "m") == {"metrics": "b", "match": "client_id=b"}


def test_only_validated(client, broker):
    for kind, name, key, value in (
        (4, "7", "num.partitions", "5"),
        (32, "g", "share.isolation.level", "read_committed"),
        (16, "m", "interval.ms", "1000"),
    ):
        assert changed(client, kind, name, (SET, key, value), validate_only=True) == (0, None)
        assert changed(client, kind, name, (SET, key, "x"), validate_only=True)[0] in (40, 42)
    assert broker.written == []


def test_what_is_never_set_may_be_deleted(client, broker):
    """kafka-reassign-partitions does so with throttles of replication, when it is done."""
    throttles = ("leader.replication.throttled.rate", "replica.alter.log.dirs.io.max.bytes.per.second")
    names = (*throttles, "log.cleaner.threads", "ssl.truststore.location")
    assert changed(client, 4, "7", *((DELETE, name, None) for name in names)) == (0, None)
    assert changed(client, 2, "t", (DELETE, "leader.replication.throttled.replicas", None)) == (0, None)
    assert changed(client, 32, "g", (DELETE, "streams.session.timeout.ms", None)) == (0, None)
    assert changed(client, 4, "7", (DELETE, "no.such.config", None))[0] == 40
    assert broker.written == []


def test_levels_of_loggers(client, broker):
    name = "halfmoon.test-of-levels"
    logger = logging.getLogger(name)
    logger.setLevel("ERROR")
    assert changed(client, 8, "7", (SET, name, "DEBUG"), validate_only=True) == (0, None)
    assert changed(client, 8, "7", (SET, name, "DEBUG"), (SET, "no.such.logger", "DEBUG"))[0] == 40
    assert logger.level == logging.ERROR
    assert changed(client, 8, "7", (SET, name, "DEBUG")) == (0, None)
    assert logger.level == logging.DEBUG
    assert changed(client, 8, "7", (DELETE, name, None)) == (0, None)
    assert logger.level == logging.NOTSET
    assert changed(client, 8, "7", (APPEND, name, "DEBUG"))[0] == 42
    assert changed(client, 8, "8", (SET, name, "DEBUG"))[0] == 42
    assert broker.written == []
