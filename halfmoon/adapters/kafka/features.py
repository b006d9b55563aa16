"""Which of Kafka's features (KIP-584) are there, and at which level: what ApiVersions says and UpdateFeatures checks.

A feature follows from the APIs that are registered, so that nothing is promised that is not offered. Each is at its
highest level from the beginning, and stays there: which APIs there are is no matter of state.

Levels: GroupVersion, TransactionVersion, ShareVersion, StreamsVersion (org.apache.kafka.server.common).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from halfmoon.errors import BrokerError, Fault


class Feature(NamedTuple):
    """A feature and the level it is at; it is supported from `least` on."""

    name: str
    least: int
    level: int


END_TXN, CONSUMER_GROUP_HEARTBEAT, SHARE_GROUP_HEARTBEAT, STREAMS_GROUP_HEARTBEAT = 26, 68, 76, 88
TWO_PHASE_END_TXN = 5
"""The version of EndTxn that raises the producer's epoch (KIP-890, transaction.version 2)."""


def features(apis: Mapping[int, int]) -> list[Feature]:
    """What follows from these APIs, highest versions by key; sorted by name."""
    found = [
        Feature(name, 0, 1)
        for name, key in (
            ("group.version", CONSUMER_GROUP_HEARTBEAT),
            ("share.version", SHARE_GROUP_HEARTBEAT),
            ("streams.version", STREAMS_GROUP_HEARTBEAT),
        )
        if key in apis
    ]
    if END_TXN in apis:
        found.append(Feature("transaction.version", 0, 2 if apis[END_TXN] >= TWO_PHASE_END_TXN else 0))
    return sorted(found)


def check_update(features: Iterable[Feature], name: str, level: int, upgrade: bool) -> None:
    """Raise BrokerError(INVALID_UPDATE_VERSION) unless the feature is at that level already."""
    feature = next((each for each in features if each.name == name), None)
    if feature is None:
        raise BrokerError(Fault.INVALID_UPDATE_VERSION, f"unknown feature {name}")
    if level == feature.level:
        return
    if not feature.least <= level <= feature.level:
        raise BrokerError(
            Fault.INVALID_UPDATE_VERSION,
            f"feature {name} has levels {feature.least} to {feature.level}, not {level}",
        )
    if upgrade:
        raise BrokerError(
            Fault.INVALID_UPDATE_VERSION, f"feature {name} is at level {feature.level}, so {level} is no upgrade"
        )
    raise BrokerError(Fault.INVALID_UPDATE_VERSION, f"feature {name} stays at level {feature.level}")
