"""Client metrics subscriptions (KIP-714): kept and shown, and put to no client.

A Kafka without a plugin that takes telemetry keeps subscriptions too, and clients send it none, since it does not offer
GetTelemetrySubscriptions. Here clients are told that nothing is wanted of them.

Rules: ClientMetricsConfigs.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from halfmoon.config.values import Kind
from halfmoon.core.append_types import ControlLog
from halfmoon.errors import BrokerError, Fault
from halfmoon.schema.control import ResourceConfigsSet
from halfmoon.services.common.patterns import InvalidPattern, Pattern
from halfmoon.services.configs.state import CLIENT_METRICS, ConfigsState

LEAST_INTERVAL_MS, MOST_INTERVAL_MS = 100, 3_600_000
EMPTY_SUBSCRIPTION = 0
"""The id of the subscription that every client has: to no metrics."""
ASK_AGAIN_MS = 300_000
"""When a client without metrics to push asks again, in ms."""
MATCHED = (
    "client_id",
    "client_instance_id",
    "client_software_name",
    "client_software_version",
    "client_source_address",
    "client_source_port",
)
"""What of a client a `match` may speak of."""
MOST_MATCH = 1_024
"""Characters of a `match`; each of its patterns is compiled to see whether it is one, which takes time."""


class MetricsConfig(NamedTuple):
    name: str
    kind: Kind
    default: str
    documentation: str


CLIENT_METRICS_CONFIGS: Mapping[str, MetricsConfig] = {
    row.name: row
    for row in (
        MetricsConfig(
            "interval.ms", Kind.INT, str(ASK_AGAIN_MS), "Interval at which clients would push these metrics."
        ),
        MetricsConfig("match", Kind.LIST, "", "Clients: client_id=REGEX and the like, separated by commas."),
        MetricsConfig("metrics", Kind.LIST, "", "Metrics: prefixes of their names, separated by commas."),
    )
}


def find(name: str) -> MetricsConfig:
    """The row of that name. Raises BrokerError(INVALID_REQUEST) that names it."""
    config = CLIENT_METRICS_CONFIGS.get(name)
    if config is None:
        raise BrokerError(Fault.INVALID_REQUEST, f"unknown client metrics configuration: {name}")
    return config


def validate(overrides: Mapping[str, str]) -> None:
    """Raise BrokerError, naming the key, unless a subscription may say this."""
    for name, value in overrides.items():
        find(name)
        if name == "interval.ms":
            _check_interval(value)
        elif name == "match":
            _check_match(value)


def _check_interval(value: str) -> None:
    if not re.fullmatch(r"[0-9]{1,10}", value.strip()) or not LEAST_INTERVAL_MS <= int(value) <= MOST_INTERVAL_MS:
        raise BrokerError(
            Fault.INVALID_REQUEST,
            f"invalid value '{value}' for interval.ms: expected {LEAST_INTERVAL_MS} to {MOST_INTERVAL_MS}",
        )


def _check_match(value: str) -> None:
    if len(value) > MOST_MATCH:
        raise BrokerError(Fault.INVALID_CONFIG, f"a match of {len(value)} characters: at most {MOST_MATCH} are allowed")
    for pattern in value.split(",") if value.strip() else ():
        name, _, expression = pattern.partition("=")
        try:
            Pattern(expression.strip())
        except InvalidPattern:
            expression = ""
        if name.strip() not in MATCHED or not expression.strip() or "=" in expression:
            raise BrokerError(Fault.INVALID_CONFIG, f"illegal client matching pattern: {pattern.strip()}")


class ClientMetrics:
    """All client metrics subscriptions of a broker."""

    def __init__(self, state: ConfigsState, appender: ControlLog) -> None:
        self._state = state
        self._appender = appender

    def overrides(self, name: str) -> dict[str, str]:
        """What a subscription says."""
        return self._state.overrides(CLIENT_METRICS, name)

    def names(self) -> list[str]:
        """The subscriptions that say anything, sorted."""
        return self._state.names(CLIENT_METRICS)

    def alter(self, name: str, overrides: Mapping[str, str]) -> int:
        """Replace all that a subscription says; returns the log position to wait for. Raises BrokerError."""
        validate(overrides)
        return self._appender.append_control(ResourceConfigsSet(CLIENT_METRICS, name, dict(overrides)))
