"""Configurations that Kafka has and that cannot be obeyed here."""

from __future__ import annotations

from fnmatch import fnmatch
from pathlib import Path

from halfmoon.services.configs.broker_configs import BrokerConfigs
from halfmoon.services.configs.refused_configs import REFUSED_CONFIGS, why_refused
from halfmoon.services.topic_configs import topic_configs

TABLE = BrokerConfigs(topic_configs())
KAFKAS = (Path(__file__).parent / "kafka_broker_configs.txt").read_text().split()
"""AbstractKafkaConfig.CONFIG_DEF.names() of Kafka 4.3.1."""
DYNAMIC_ONLY = [
    "follower.replication.throttled.rate",
    "leader.replication.throttled.rate",
    "replica.alter.log.dirs.io.max.bytes.per.second",
]
"""Which Kafka has in DynamicConfig alone."""


def test_all_that_kafka_has_is_known() -> None:
    assert [name for name in KAFKAS + DYNAMIC_ONLY if name not in TABLE.rows and why_refused(name) is None] == []


def test_nothing_else_is() -> None:
    known = [name for name in KAFKAS + DYNAMIC_ONLY if name not in TABLE.rows]
    assert [each for each in REFUSED_CONFIGS if not any(fnmatch(name, each) for name in known)] == []
    assert why_refused("no.such.config") is None
    assert why_refused("ssl") is None


def test_the_longest_beginning_says_why() -> None:
    assert why_refused("replica.selector.class") == "nothing is replicated between nodes"
    assert why_refused("replica.lag.time.max.ms") == "nothing is replicated between nodes"


def test_what_there_is_here_is_not_refused() -> None:
    assert TABLE.rows.keys().isdisjoint(REFUSED_CONFIGS)
    for name in TABLE.rows:
        assert not TABLE.known_elsewhere(name)
        assert TABLE.find(name).name == name
