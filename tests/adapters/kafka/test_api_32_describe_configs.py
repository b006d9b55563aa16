"""DescribeConfigs: values, sources, synonyms, types and documentation of topics and of the node."""

from __future__ import annotations

import logging

import pytest
from fake_admin_broker import Client, FakeAdminBroker, versions

from halfmoon.adapters.kafka import resources
from halfmoon.adapters.kafka.protocol import DescribeConfigsRequest
from halfmoon.config.kept_configs import KEPT_OF_TOPICS, NO_EFFECT
from halfmoon.config.settings import Settings
from halfmoon.services.configs.group_configs import GROUP_CONFIGS
from halfmoon.services.topic_configs import topic_configs

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
    assert list(found) == sorted(topic_configs().rows)
    assert {name: (c.value, c.config_source, c.read_only) for name, c in found.items()} == {
        "cleanup.policy": ("delete", 5, False),
        "delete.retention.ms": ("86400000", 5, False),
        "max.compaction.lag.ms": (str(2**63 - 1), 5, False),
        "min.cleanable.dirty.ratio": ("0.5", 5, False),
        "min.compaction.lag.ms": ("0", 5, False),
        "halfmoon.delete.force": ("false", 5, False),
        "halfmoon.durability": ("fast", 5, True),
        "halfmoon.headers.enable": ("true", 5, False),
        "halfmoon.key.index": ("false", 5, False),
        "halfmoon.replication.factor": ("1", 5, True),
        "halfmoon.rocketmq.body": ("plain", 5, False),
        "halfmoon.rocketmq.message.type": ("NORMAL", 5, False),
        "halfmoon.rocketmq.order": ("false", 5, False),
        "halfmoon.rocketmq.queue.type": ("SimpleCQ", 5, False),
        "halfmoon.rocketmq.reserve.time": ("-1", 5, False),
        "max.message.bytes": ("1000", 1, False),
        "message.timestamp.after.max.ms": (str(2**63 - 1), 5, False),
        "message.timestamp.before.max.ms": (str(2**63 - 1), 5, False),
        "message.timestamp.type": ("CreateTime", 5, False),
        "min.insync.replicas": ("1", 5, False),
        "retention.bytes": ("-1", 5, False),
        "retention.ms": ("5", 1, False),
    } | {kept.name: (kept.default(Settings()), 5, False) for kept in KEPT_OF_TOPICS}
    assert not any(c.is_sensitive for c in found.values())
    assert [(s.name, s.value, s.source) for s in found["retention.ms"].synonyms] == [
        ("retention.ms", "5", 1),
        ("log.retention.ms", "86400000", 4),
    ]
    assert [(s.name, s.value, s.source) for s in found["segment.ms"].synonyms] == [("log.roll.ms", "604800000", 5)]
    assert [(s.name, s.value, s.source) for s in found["cleanup.policy"].synonyms] == [
        ("log.cleanup.policy", "delete", 5)
    ]
    if version >= 3:
        assert (found["retention.ms"].config_type, found["cleanup.policy"].config_type) == (5, 7)
        assert all(c.documentation for c in found.values())
        assert found["segment.ms"].documentation.startswith(NO_EFFECT)


@pytest.mark.parametrize("version", versions(KEY))
def test_only_what_is_asked_for(client, version):
    found = configs(client, version, resource(TOPIC, "t", ["retention.ms", "no.such.config"]))
    assert list(found) == ["retention.ms"]
    assert found["retention.ms"].synonyms == []
    if version >= 3:
        assert found["retention.ms"].documentation is None


def test_of_many_topics_each_is_described_as_it_is_alone(client, monkeypatch):
    for name in ("a", "b"):
        client.broker.add(name)
    client.broker.add("c", max_message_bytes="1000", retention_ms=" 5 ")
    asked = [resource(TOPIC, name, keys) for name, keys in (
        ("t", None), ("a", None), ("c", None), ("b", ["retention.ms"]), ("missing", None),
    )]  # fmt: skip

    def told(*resources) -> list:
        return client.ask(KEY, 4, resources=list(resources), include_synonyms=True, include_documentation=True).results

    alone = [told(each)[0] for each in asked]
    made = []
    topic_entries = resources.topic_entries
    monkeypatch.setattr(resources, "topic_entries", lambda *given: made.append(given) or topic_entries(*given))
    together = told(*asked)
    assert together == alone
    assert len(made) == 3, "what is said alike, and asked alike, is worked out once"


@pytest.mark.parametrize("version", versions(KEY))
def test_node(client, version):
    found = configs(client, version, resource(BROKER, NODE))
    assert list(found) == sorted(found)
    assert {name for name, c in found.items() if c.read_only} > {"node.id", "log.dirs", "advertised.listeners"}
    assert {name for name, c in found.items() if not c.read_only} > {"num.partitions", "log.retention.ms"}
    values = {name: (c.value, c.config_source) for name, c in found.items()}
    assert values["advertised.listeners"] == ("PLAINTEXT://broker.test:9093", 4)
    assert values["num.partitions"] == ("2", 4)
    assert values["log.retention.ms"] == ("86400000", 4)
    assert values["auto.create.topics.enable"] == ("true", 5)
    assert values["message.max.bytes"] == (str(4 << 20), 5)


def sources(entry) -> list[tuple[str, str, int]]:
    return [(synonym.name, synonym.value, synonym.source) for synonym in entry.synonyms]


def test_what_is_set_at_run_time_stands_above_the_rest(client):
    assert configs(client, 4, resource(BROKER, "")) == {}
    dynamic = client.broker.dynamic_configs
    dynamic.alter("", {"log.retention.ms": "1000", "num.partitions": "3"})
    dynamic.alter(NODE, {"log.retention.ms": " 2000 "})
    (everywhere, partitions) = configs(client, 4, resource(BROKER, ""), include_synonyms=True).values()
    assert (everywhere.name, everywhere.value, everywhere.config_source) == ("log.retention.ms", "1000", 3)
    assert (partitions.name, partitions.value) == ("num.partitions", "3")
    node = configs(client, 4, resource(BROKER, NODE), include_synonyms=True)
    layers = [
        ("log.retention.ms", "2000", 2),
        ("log.retention.ms", "1000", 3),
        ("log.retention.ms", "86400000", 4),
    ]
    assert sources(node["log.retention.ms"]) == layers
    assert sources(node["num.partitions"]) == [("num.partitions", "3", 3), ("num.partitions", "2", 4)]
    topic = configs(client, 4, resource(TOPIC, "t"), include_synonyms=True)
    assert sources(topic["retention.ms"]) == [("retention.ms", "5", 1), *layers]
    client.broker.add("plain")
    topic = configs(client, 4, resource(TOPIC, "plain"), include_synonyms=True)
    assert (topic["retention.ms"].value, topic["retention.ms"].config_source) == ("2000", 2)
    assert sources(topic["retention.ms"]) == layers


@pytest.mark.parametrize("version", versions(KEY))
def test_group(client, version):
    client.broker.dynamic_configs.alter("", {"group.consumer.session.timeout.ms": "50000"})
    client.broker.group_configs.alter("g", {"share.auto.offset.reset": "earliest"})
    found = configs(client, version, resource(32, "g"), include_synonyms=True)
    assert list(found) == sorted(GROUP_CONFIGS)
    assert not any(entry.read_only for entry in found.values())
    reset, session = found["share.auto.offset.reset"], found["consumer.session.timeout.ms"]
    assert (reset.value, reset.config_source) == ("earliest", 8)
    assert sources(reset) == [("share.auto.offset.reset", "earliest", 8), ("share.auto.offset.reset", "latest", 5)]
    assert (session.value, session.config_source) == ("50000", 3)
    name = "group.consumer.session.timeout.ms"
    assert sources(session) == [(name, "50000", 3), (name, "45000", 5)]


@pytest.mark.parametrize("version", versions(KEY))
def test_client_metrics(client, version):
    client.broker.client_metrics.alter("m", {"match": "client_id=a.*"})
    found = configs(client, version, resource(16, "m"), include_synonyms=True)
    assert {name: (entry.value, entry.config_source, sources(entry)) for name, entry in found.items()} == {
        "interval.ms": ("300000", 5, []),
        "match": ("client_id=a.*", 7, [("match", "client_id=a.*", 7)]),
        "metrics": ("", 5, []),
    }


@pytest.mark.parametrize("version", versions(KEY))
def test_levels_of_loggers(client, version):
    logging.getLogger("halfmoon.test-of-levels").setLevel("ERROR")
    entry = configs(client, version, resource(8, NODE), include_synonyms=True)["halfmoon.test-of-levels"]
    assert (entry.value, entry.config_source, entry.read_only, entry.synonyms) == ("ERROR", 6, False, [])


@pytest.mark.parametrize("version", versions(KEY))
@pytest.mark.parametrize(
    ("kind", "name", "code"),
    [
        (TOPIC, "missing", 3),
        (TOPIC, "", 17),
        (TOPIC, "a b", 17),
        (BROKER, "8", 42),
        (BROKER, "seven", 42),
        (8, "", 42),
        (8, "8", 42),
        (16, "", 42),
        (32, "", 42),
        (99, "", 42),
    ],
)
def test_refusals(client, version, kind, name, code):
    bad, good = client.ask(KEY, version, resources=[resource(kind, name), resource(TOPIC, "t")]).results
    assert (bad.error_code, bad.resource_type, bad.resource_name, bad.configs) == (code, kind, name, [])
    assert bad.error_message
    assert good.error_code == 0


def test_a_great_many_groups_are_asked_for_in_portions(client):
    results = client.ask(
        KEY, 4, resources=[resource(32, f"g{number}", ["share.isolation.level"]) for number in range(1001)]
    )
    assert [result.error_code for result in results.results] == [0] * 1000 + [42]
