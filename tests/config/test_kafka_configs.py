"""Our tables of configurations beside Kafka's own: kafka_configs.json, which tests/interop/test_kafka_configs.py makes
from Kafka 4.3.1.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from halfmoon.config.kept_configs import KEPT_OF_NODES, KEPT_OF_TOPICS, NO_EFFECT
from halfmoon.config.settings import Settings
from halfmoon.errors import BrokerError, Fault
from halfmoon.services.configs.broker_configs import BrokerConfigs
from halfmoon.services.topic_configs import topic_configs

KAFKA: dict[str, Any] = json.loads((Path(__file__).parent / "kafka_configs.json").read_text())
TOPICS = KAFKA["topics"]
TABLE = topic_configs()
NODES = BrokerConfigs(TABLE)

OTHER_DEFAULTS = {
    "max.message.bytes": "4194304",
    "message.timestamp.after.max.ms": str(2**63 - 1),  # an hour would refuse what is written for later
}
REFUSED_OF_NODES = {
    "config.providers",
    "cordoned.log.dirs",
    "group.streams.assignment.interval.ms",
    "listener.security.protocol.map",
    "listeners",
    "log.cleaner.io.max.bytes.per.second",  # shown; a change needs a restart
    "max.connection.creation.rate",
    "max.connections.per.ip",
    "max.connections.per.ip.overrides",
    "metric.reporters",
    "principal.builder.class",
    "producer.id.expiration.ms",
}
"""Which Kafka changes at run time, beside those of ssl and sasl, and which would promise here what is not kept."""


def takes(name: str, value: str) -> bool:
    try:
        TABLE.validate({name: value})
    except BrokerError as error:
        if error.fault is not Fault.INVALID_CONFIG or name not in error.message:
            raise
        return False
    return True


def test_every_name_of_kafka_is_known() -> None:
    assert sorted(TOPICS.keys() - TABLE.rows.keys()) == []
    assert sorted(name for name in TABLE.rows.keys() - TOPICS.keys() if not name.startswith("halfmoon.")) == []


@pytest.mark.parametrize("name", TOPICS)
def test_types_defaults_and_synonyms_are_kafkas(name: str) -> None:
    row, kafka = TABLE.rows[name], TOPICS[name]
    assert row.kind.name == kafka["type"]
    assert row.default(Settings()) == OTHER_DEFAULTS.get(name, kafka["default"])
    assert row.node_name == (kafka["nodes"] or [""])[0]


@pytest.mark.parametrize("name", TOPICS)
def test_values_are_taken_and_refused_as_by_kafka(name: str) -> None:
    kafka = TOPICS[name]
    assert kafka["refused"]
    assert [value for value in kafka["accepted"] if not takes(name, value)] == []
    assert [value for value in kafka["refused"] if takes(name, value)] == []


def test_what_has_no_effect_says_so() -> None:
    for kept in KEPT_OF_TOPICS:
        row = TABLE.rows[kept.name]
        assert row.no_effect
        assert row.rule == ""
        assert row.documentation == f"{NO_EFFECT}: {kept.why}."
    for kept in KEPT_OF_NODES:
        assert NODES.rows[kept.name].no_effect
        assert NODES.rows[kept.name].documentation == f"{NO_EFFECT}: {kept.why}."
    assert not TABLE.rows["retention.ms"].no_effect


def test_what_kafka_changes_at_run_time_can_be_changed() -> None:
    dynamic = {name for name in KAFKA["dynamic"] if not name.startswith(("ssl.", "sasl."))}
    assert {name for name in dynamic if name not in NODES.rows or NODES.rows[name].read_only} == REFUSED_OF_NODES


def test_names_that_kafka_4_has_no_more_are_refused_with_the_reason() -> None:
    with pytest.raises(BrokerError, match=r"message\.format\.version is not supported: Kafka 4\.0 has removed it"):
        TABLE.validate({"message.format.version": "2.0"})
