"""IncrementalAlterConfigs (44): set, delete, append to or subtract from single overrides of a topic (KIP-339).

Rules: ConfigurationControlManager.incrementalAlterConfigResource. Unlike Kafka, deleting a configuration that does
not exist is refused: it is a misspelling.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from halfmoon.adapters.kafka.alter_configs import alter, refuse_nulls
from halfmoon.adapters.kafka.protocol import IncrementalAlterConfigsResponse
from halfmoon.adapters.kafka.registry import Context, api
from halfmoon.core.errors import BrokerError, Fault
from halfmoon.core.topic_configs import Kind, find

if TYPE_CHECKING:
    from halfmoon.core.catalog import Topic
    from halfmoon.core.config import Settings

SET, DELETE, APPEND, SUBTRACT = range(4)


@api(44, "IncrementalAlterConfigs", 0, 1)
def incremental_alter_configs(ctx: Context, request: Any) -> object:
    return alter(ctx, request, IncrementalAlterConfigsResponse, _changed)


def _changed(ctx: Context, topic: Topic | None, resource: Any) -> dict[str, str]:
    configs = resource.configs
    refuse_nulls([config.name for config in configs if config.config_operation != DELETE and config.value is None])
    overrides = {} if topic is None else dict(topic.configs)
    for config in configs:
        _apply(ctx.broker.settings, overrides, config.name, config.config_operation, config.value)
    return overrides


def _apply(settings: Settings, overrides: dict[str, str], name: str, operation: int, value: str) -> None:
    config = find(name)
    if operation == SET:
        overrides[name] = value
    elif operation == DELETE:
        overrides.pop(name, None)
    elif operation in (APPEND, SUBTRACT):
        if config.kind is not Kind.LIST:
            verb = "append to" if operation == APPEND else "subtract from"
            raise BrokerError(Fault.INVALID_CONFIG, f"can't {verb} config {name}: its type is not a list")
        items = [item for item in overrides.get(name, config.default(settings)).split(",") if item]
        for item in value.split(","):
            if operation == APPEND and item not in items:
                items.append(item)
            elif operation == SUBTRACT and item in items:
                items.remove(item)
        overrides[name] = ",".join(items)
    else:
        raise BrokerError(Fault.INVALID_REQUEST, f"unknown operation type {operation}")
