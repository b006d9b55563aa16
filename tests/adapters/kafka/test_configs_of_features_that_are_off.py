"""Configurations of features that are off: kept by every change, shown to nobody, refused where they are new."""

from __future__ import annotations

import pytest
from fake_admin_broker import FakeAdminBroker

from halfmoon.adapters.kafka.protocol import REQUESTS
from halfmoon.schema.control import ResourceConfigsSet
from halfmoon.services.configs.state import ALL_NODES, BROKER

CREATE, DESCRIBE, ALTER, INCREMENTAL = 19, 32, 33, 44
TOPIC_TYPE, BROKER_TYPE = 2, 4
SET, DELETE = 0, 1
INVALID_CONFIG = 40
VIEW = {"halfmoon.view.source": "s", "halfmoon.view.tag": "a"}


@pytest.fixture
def broker():
    broker = FakeAdminBroker(off=("view", "keyindex"))
    broker.add("v", retention_ms="5").configs.update(VIEW)
    return broker


def described(client, kind, name):
    resource = REQUESTS[DESCRIBE].DescribeConfigsResource(
        resource_type=kind, resource_name=name, configuration_keys=None
    )
    (result,) = client.ask(DESCRIBE, 4, resources=[resource], include_synonyms=True).results
    assert result.error_code == 0
    return {config.name: config.value for config in result.configs}


def replace(client, kind, resource_name, **configs):
    struct = REQUESTS[ALTER].AlterConfigsResource
    entries = [struct.AlterableConfig(name=name.replace("_", "."), value=value) for name, value in configs.items()]
    resource = struct(resource_type=kind, resource_name=resource_name, configs=entries)
    (result,) = client.ask(ALTER, 2, resources=[resource]).responses
    return result.error_code, result.error_message


def change(client, kind, name, *operations):
    struct = REQUESTS[INCREMENTAL].AlterConfigsResource
    entries = [
        struct.AlterableConfig(name=config, config_operation=operation, value=value)
        for operation, config, value in operations
    ]
    resource = struct(resource_type=kind, resource_name=name, configs=entries)
    (result,) = client.ask(INCREMENTAL, 1, resources=[resource]).responses
    return result.error_code, result.error_message


def test_they_are_not_shown(client):
    found = described(client, TOPIC_TYPE, "v")
    assert found["retention.ms"] == "5"
    assert found.keys().isdisjoint({*VIEW, "halfmoon.key.index"})
    assert "halfmoon.topics.key_index" not in described(client, BROKER_TYPE, "7")


def test_a_change_keeps_them(client, broker):
    assert replace(client, TOPIC_TYPE, "v", retention_ms="6") == (0, None)
    assert broker.topic("v").configs == VIEW | {"retention.ms": "6"}
    assert change(client, TOPIC_TYPE, "v", (DELETE, "retention.ms", None)) == (0, None)
    assert broker.topic("v").configs == VIEW
    assert replace(client, TOPIC_TYPE, "v") == (0, None)
    assert broker.topic("v").configs == VIEW


@pytest.mark.parametrize("name", ["halfmoon.view.tag", "halfmoon.view.from", "halfmoon.view.x"])
def test_they_cannot_be_changed(client, broker, name):
    refused = (INVALID_CONFIG, f"topic config {name} is not supported: view is off in broker.yaml")
    assert change(client, TOPIC_TYPE, "v", (SET, name, "b")) == refused
    assert change(client, TOPIC_TYPE, "v", (DELETE, name, None)) == refused
    assert replace(client, TOPIC_TYPE, "v", **{name: "b"}) == refused
    assert broker.written == []


def test_they_are_refused_where_a_topic_is_created(client, broker):
    topic = REQUESTS[CREATE].CreatableTopic
    wanted = topic(
        name="new", num_partitions=1, replication_factor=1, assignments=[],
        configs=[topic.CreatableTopicConfig(name="halfmoon.view.source", value="s")],
    )  # fmt: skip
    (result,) = client.ask(CREATE, 7, topics=[wanted], timeout_ms=1000).topics
    assert (result.error_code, result.error_message) == (
        INVALID_CONFIG,
        "topic config halfmoon.view.source is not supported: view is off in broker.yaml",
    )
    assert broker.topic("new") is None


def test_those_of_the_node_as_well(client, broker):
    kept = {"halfmoon.topics.key_index": "true"}
    broker.append_control(ResourceConfigsSet(BROKER, ALL_NODES, {**kept, "num.partitions": "3"}))
    broker.dynamic_configs.apply()
    assert broker.dynamic_configs.left_out == {}
    assert described(client, BROKER_TYPE, "") == {"num.partitions": "3"}
    assert replace(client, BROKER_TYPE, "", num_partitions="4") == (0, None)
    assert broker.dynamic_configs.overrides(ALL_NODES) == {**kept, "num.partitions": "4"}
    assert change(client, BROKER_TYPE, "", (DELETE, "num.partitions", None)) == (0, None)
    assert broker.dynamic_configs.overrides(ALL_NODES) == kept
    error, message = change(client, BROKER_TYPE, "", (SET, "halfmoon.topics.key_index", "false"))
    assert (error, message) == (INVALID_CONFIG, "unknown broker config name: halfmoon.topics.key_index")
