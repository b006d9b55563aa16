"""DescribeConfigs: values, sources, synonyms, types and documentation of topics and of the node."""

from __future__ import annotations

import pytest
from fake_admin_broker import Client, FakeAdminBroker, versions

from halfmoon.adapters.kafka.protocol import DescribeConfigsRequest
from halfmoon.core.topic_configs import TOPIC_CONFIGS

KEY = 32
TOPIC, BROKER = 2, 4
NODE = str(FakeAdminBroker.node_id)


@pytest.fixture
def client():
    broker = FakeAdminBroker(log__retention="1d", topics__partitions=2)
    broker.add("t", max_message_bytes="1000", retention_ms=" 5 ")
    return Client(broker)


def resource(kind: int, name: str, keys: list[str] | None = None) -> object:
    return DescribeConfigsRequest.DescribeConfigsResource(
        resource_type=kind, resource_name=name, configuration_keys=keys
    )


def configs(client, version, *resources, **fields) -> dict:
    (result,) = client.ask(KEY, version, resources=list(resources), **fields).results
    assert result.error_code == 0
    return {config.name: config for config in result.configs}


@pytest.mark.parametrize("version", versions(KEY))
@pytest.mark.parametrize("keys", [None, []])
def test_topic(client, version, keys):
    found = configs(client, version, resource(TOPIC, "t", keys), include_synonyms=True, include_documentation=True)
    assert list(found) == sorted(TOPIC_CONFIGS)
    assert {name: (c.value, c.config_source, c.read_only) for name, c in found.items()} == {
        "cleanup.policy": ("delete", 5, False),
        "delete.retention.ms": ("86400000", 5, False),
        "max.compaction.lag.ms": (str(2**63 - 1), 5, False),
        "min.cleanable.dirty.ratio": ("0.5", 5, False),
        "min.compaction.lag.ms": ("0", 5, False),
        "compression.type": ("producer", 5, False),
        "halfmoon.delete.force": ("false", 5, False),
        "halfmoon.headers.enable": ("true", 5, False),
        "halfmoon.key.index": ("false", 5, False),
        "halfmoon.rocketmq.body": ("plain", 5, False),
        "max.message.bytes": ("1000", 1, False),
        "message.timestamp.after.max.ms": (str(2**63 - 1), 5, False),
        "message.timestamp.before.max.ms": (str(2**63 - 1), 5, False),
        "message.timestamp.type": ("CreateTime", 5, False),
        "min.insync.replicas": ("1", 5, False),
        "retention.bytes": ("-1", 5, False),
        "retention.ms": ("5", 1, False),
        "segment.bytes": (str(1 << 30), 5, True),
        "unclean.leader.election.enable": ("false", 5, False),
    }
    assert not any(c.is_sensitive for c in found.values())
    assert [(s.name, s.value, s.source) for s in found["retention.ms"].synonyms] == [
        ("retention.ms", "5", 1),
        ("log.retention.ms", "86400000", 4),
    ]
    assert [(s.name, s.value, s.source) for s in found["cleanup.policy"].synonyms] == [
        ("log.cleanup.policy", "delete", 5)
    ]
    if version >= 3:
        assert (found["retention.ms"].config_type, found["cleanup.policy"].config_type) == (5, 7)
        assert all(c.documentation for c in found.values())


@pytest.mark.parametrize("version", versions(KEY))
def test_only_what_is_asked_for(client, version):
    found = configs(client, version, resource(TOPIC, "t", ["retention.ms", "no.such.config"]))
    assert list(found) == ["retention.ms"]
    assert found["retention.ms"].synonyms == []
    if version >= 3:
        assert found["retention.ms"].documentation is None


@pytest.mark.parametrize("version", versions(KEY))
def test_node(client, version):
    found = configs(client, version, resource(BROKER, NODE))
    assert list(found) == sorted(found)
    assert all(c.read_only for c in found.values())
    values = {name: (c.value, c.config_source) for name, c in found.items()}
    assert values["advertised.listeners"] == ("PLAINTEXT://broker.test:9093", 4)
    assert values["num.partitions"] == ("2", 4)
    assert values["log.retention.ms"] == ("86400000", 4)
    assert values["auto.create.topics.enable"] == ("true", 5)
    assert values["message.max.bytes"] == (str(4 << 20), 5)


def test_the_dynamic_default_of_all_nodes_is_empty(client):
    assert configs(client, 4, resource(BROKER, "")) == {}


@pytest.mark.parametrize("version", versions(KEY))
@pytest.mark.parametrize(
    ("kind", "name", "code"),
    [
        (TOPIC, "missing", 3),
        (TOPIC, "", 17),
        (TOPIC, "a b", 17),
        (BROKER, "8", 42),
        (BROKER, "seven", 42),
        (8, NODE, 42),
        (32, "group", 42),
        (99, "", 42),
    ],
)
def test_refusals(client, version, kind, name, code):
    bad, good = client.ask(KEY, version, resources=[resource(kind, name), resource(TOPIC, "t")]).results
    assert (bad.error_code, bad.resource_type, bad.resource_name, bad.configs) == (code, kind, name, [])
    assert bad.error_message
    assert good.error_code == 0
