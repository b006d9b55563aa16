"""AlterConfigs: all overrides of a topic at once. What both alter APIs share is tested here for both."""

from __future__ import annotations

import pytest
from fake_admin_broker import FakeAdminBroker, versions

from halfmoon.adapters.kafka.protocol import REQUESTS
from halfmoon.errors import BrokerError, Fault

KEY, INCREMENTAL = 33, 44
TOPIC, BROKER = 2, 4
BOTH = [(key, version) for key in (KEY, INCREMENTAL) for version in versions(key)]


@pytest.fixture
def broker():
    broker = FakeAdminBroker()
    broker.add("t", retention_ms="5", max_message_bytes="1000")
    return broker


def resource(key: int, kind: int, name: str, *configs: tuple[str, str | None]) -> object:
    """Both APIs' resources look alike; an incremental change is a SET (0)."""
    struct = REQUESTS[key].AlterConfigsResource
    entries = [struct.AlterableConfig(name=name, value=value) for name, value in configs]
    if key == INCREMENTAL:
        for entry in entries:
            entry.config_operation = 0
    return struct(resource_type=kind, resource_name=name, configs=entries)


def told(answer) -> list[tuple[int, str | None]]:
    return [(r.error_code, r.error_message) for r in answer.responses]


@pytest.mark.parametrize("version", versions(KEY))
def test_replaces_all_once_the_log_has_it(client, broker, version):
    change = resource(KEY, TOPIC, "t", ("retention.ms", "7"), ("cleanup.policy", "delete"))
    pending = client.send(KEY, version, REQUESTS[KEY](resources=[change]))
    assert pending.answer is None
    broker.flush()
    assert told(pending.answer) == [(0, None)]
    assert (pending.answer.responses[0].resource_type, pending.answer.responses[0].resource_name) == (TOPIC, "t")
    assert broker.topic("t").configs == {"retention.ms": "7", "cleanup.policy": "delete"}


def test_no_configs_remove_all_overrides(client, broker):
    assert told(client.ask(KEY, 2, resources=[resource(KEY, TOPIC, "t")])) == [(0, None)]
    assert broker.topic("t").configs == {}


@pytest.mark.parametrize(("key", "version"), BOTH)
def test_validate_only(client, broker, key, version):
    resources = [resource(key, TOPIC, "t", ("retention.ms", "7")), resource(key, BROKER, "8")]
    answer = client.ask(key, version, resources=resources, validate_only=True)
    assert [code for code, _ in told(answer)] == [0, 42]
    assert broker.written == []


@pytest.mark.parametrize(("key", "version"), BOTH)
@pytest.mark.parametrize(
    ("kind", "name", "configs", "code", "says"),
    [
        (TOPIC, "missing", [("retention.ms", "1")], 3, "missing"),
        (TOPIC, "missing", [("no.such.config", "1")], 40, "no.such.config"),
        (TOPIC, "", [("retention.ms", "1")], 42, "default"),
        (TOPIC, "a b", [("retention.ms", "1")], 17, "a b"),
        (TOPIC, "t", [("retention.ms", "-2")], 40, "retention.ms"),
        (TOPIC, "t", [("cleanup.policy", "shrink")], 40, "compact"),
        (TOPIC, "t", [("segment.ms", "0")], 40, "segment.ms"),
        (TOPIC, "t", [("retention.ms", "1"), ("retention.ms", "2")], 42, "more than once"),
        (TOPIC, "t", [("retention.ms", None)], 42, "retention.ms"),
        (BROKER, "7", [("node.id", "1")], 42, "broker.yaml"),
        (BROKER, "", [("log.dirs", "/tmp")], 42, "broker.yaml"),
        (BROKER, "8", [("num.partitions", "1")], 42, "8"),
        (BROKER, "7", [("num.partitions", "0")], 42, "num.partitions"),
        (BROKER, "7", [("group.min.session.timeout.ms", "2000000000")], 42, "session_timeout"),
        (BROKER, "7", [("log.roll.hours", "1")], 42, "commitlog"),
        (BROKER, "7", [("no.such.config", "1")], 40, "no.such.config"),
        (BROKER, "7", [("group.share.session.timeout.ms", "5000")], 40, "heartbeat"),
        (16, "", [("interval.ms", "1000")], 42, "empty"),
        (16, "m", [("interval.ms", "10")], 42, "interval.ms"),
        (16, "m", [("no.such.config", "1")], 42, "no.such.config"),
        (16, "m", [("match", "client_id=[")], 40, "client_id=["),
        (16, "m", [("match", "colour=red")], 40, "colour"),
        (32, "", [("share.isolation.level", "read_committed")], 42, "empty"),
        (32, "g", [("share.isolation.level", "READ_COMMITTED")], 40, "share.isolation.level"),
        (32, "g", [("streams.session.timeout.ms", "1000")], 40, "Streams"),
        (32, "g", [("no.such.config", "1")], 40, "no.such.config"),
        (64, "7", [("root", "DEBUG")], 42, "type 64"),
    ],
)
def test_refusals(client, broker, key, version, kind, name, configs, code, says):
    ((error_code, message),) = told(client.ask(key, version, resources=[resource(key, kind, name, *configs)]))
    assert error_code == code
    assert says in message
    assert broker.written == []


@pytest.mark.parametrize(("key", "version"), BOTH)
def test_a_resource_given_twice(client, broker, key, version):
    twice = [resource(key, TOPIC, "t", ("retention.ms", value)) for value in ("1", "2")]
    assert [code for code, _ in told(client.ask(key, version, resources=twice))] == [42, 42]
    assert broker.written == []


@pytest.mark.parametrize("key", [KEY, INCREMENTAL])
def test_a_log_that_loses_it(client, broker, key):
    resources = [resource(key, TOPIC, "t", ("retention.ms", "1")), resource(key, TOPIC, "missing")]
    pending = client.send(key, 1, REQUESTS[key](resources=resources))
    broker.flush(BrokerError(Fault.KAFKA_STORAGE_ERROR, "the disk broke"))
    assert told(pending.answer)[0] == (56, "the disk broke")
    assert told(pending.answer)[1][0] == 56  # nor is it told that a topic is gone
