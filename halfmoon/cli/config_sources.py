"""Where a configuration's value comes from, in Kafka's words."""

from __future__ import annotations

from typing import Any

SOURCES = (
    "UNKNOWN", "DYNAMIC_TOPIC_CONFIG", "DYNAMIC_BROKER_CONFIG", "DYNAMIC_DEFAULT_BROKER_CONFIG",
    "STATIC_BROKER_CONFIG", "DEFAULT_CONFIG", "DYNAMIC_BROKER_LOGGER_CONFIG", "DYNAMIC_CLIENT_METRICS_CONFIG",
    "DYNAMIC_GROUP_CONFIG",
)  # fmt: skip
"""Of a configuration's value, by number (DescribeConfigsResponse.ConfigSource)."""
NOT_ITS_OWN = ("DYNAMIC_DEFAULT_BROKER_CONFIG", "STATIC_BROKER_CONFIG", "DEFAULT_CONFIG")
"""Sources of values that a resource has not been given itself."""


def source(row: Any) -> str:
    if row.config_source < 0:  # an old broker's answer
        return "DEFAULT_CONFIG" if row.is_default else "DYNAMIC_TOPIC_CONFIG"
    return SOURCES[row.config_source] if row.config_source < len(SOURCES) else SOURCES[0]
