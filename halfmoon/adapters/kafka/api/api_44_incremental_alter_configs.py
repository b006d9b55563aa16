"""IncrementalAlterConfigs (44): set, delete, append to or subtract from single configurations (KIP-339).

Rules: ConfigurationControlManager.incrementalAlterConfigResource; of loggers, BrokerLoggerManager. Unlike Kafka,
deleting a configuration that does not exist is refused: it is a misspelling.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from halfmoon.adapters.kafka import loggers
from halfmoon.adapters.kafka.alter_configs import alter, refuse_nulls
from halfmoon.adapters.kafka.durable import each_of, tells_state
from halfmoon.adapters.kafka.protocol import IncrementalAlterConfigsResponse, Slices
from halfmoon.adapters.kafka.registry import Context
from halfmoon.config.values import Kind
from halfmoon.errors import BrokerError, Fault

if TYPE_CHECKING:
    from halfmoon.adapters.kafka.resources import Resource

SET, DELETE, APPEND, SUBTRACT = range(4)


@tells_state(each_of("responses"))
def handle(ctx: Context, request: Any) -> Slices[object]:
    return (yield from alter(ctx, request, IncrementalAlterConfigsResponse, _changed, _change_levels))


def _changed(resource: Resource, asked: Any) -> dict[str, str]:
    configs = asked.configs
    refuse_nulls([config.name for config in configs if config.config_operation != DELETE and config.value is None])
    overrides = resource.overrides()
    for config in configs:
        _apply(resource, overrides, config.name, config.config_operation, config.value)
    return overrides


def _apply(resource: Resource, overrides: dict[str, str], name: str, operation: int, value: str) -> None:
    if operation == DELETE and resource.never_set(name):
        return
    kind = resource.kind(name)
    if operation == SET:
        overrides[name] = value
    elif operation == DELETE:
        overrides.pop(name, None)
    elif operation in (APPEND, SUBTRACT):
        if kind is not Kind.LIST:
            verb = "append to" if operation == APPEND else "subtract from"
            raise BrokerError(Fault.INVALID_CONFIG, f"can't {verb} config {name}: its type is not a list")
        items = [item for item in overrides.get(name, resource.default(name)).split(",") if item]
        for item in value.split(","):
            if operation == APPEND and item not in items:
                items.append(item)
            elif operation == SUBTRACT and item in items:
                items.remove(item)
        overrides[name] = ",".join(items)
    else:
        raise BrokerError(Fault.INVALID_REQUEST, f"unknown operation type {operation}")


def _change_levels(ctx: Context, asked: Any, validate_only: bool) -> None:
    """Set or unset levels of loggers: all of them, or none if one is refused."""
    if asked.resource_name != str(ctx.core.node_id):
        raise BrokerError(
            Fault.INVALID_REQUEST,
            f"unexpected broker id: expected {ctx.core.node_id}, received {asked.resource_name}",
        )
    for config in asked.configs:
        if config.config_operation not in (SET, DELETE):
            raise BrokerError(Fault.INVALID_REQUEST, "levels of loggers are set or deleted")
        loggers.check(config.name, _level(config))
    if not validate_only:
        for config in asked.configs:
            loggers.set_level(config.name, _level(config))


def _level(config: Any) -> str | None:
    return None if config.config_operation == DELETE else str(config.value)
