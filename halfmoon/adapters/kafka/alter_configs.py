"""What AlterConfigs and IncrementalAlterConfigs share: which resources may be altered, and how that is answered.

Rules: ConfigAdminManager.preprocess, then ControllerConfigurationValidator, then the check that the topic exists. Each
resource succeeds or fails for itself.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any, TypeAlias

from halfmoon.adapters.kafka.duplicates import duplicates
from halfmoon.adapters.kafka.durable import later, refuse, when_durable
from halfmoon.adapters.kafka.lookup import topic_named
from halfmoon.adapters.kafka.registry import Context
from halfmoon.core.errors import BrokerError, Fault
from halfmoon.core.topic_configs import validate
from halfmoon.core.topic_names import check_topic_name

if TYPE_CHECKING:
    from halfmoon.core.catalog import Topic

OverridesAfter: TypeAlias = "Callable[[Context, Topic | None, Any], dict[str, str]]"

TOPIC, BROKER = 2, 4
"""Resource types: org.apache.kafka.common.config.ConfigResource.Type."""


def alter(ctx: Context, request: Any, response_class: Any, overrides_after: OverridesAfter) -> object:
    """Answer an alter request. `overrides_after(ctx, topic, resource)` says what the topic's overrides are to become.

    It raises BrokerError where the resource asks for something wrong, and must do so for a topic that is None
    (missing) too, so that a wrong configuration is named before a missing topic, as Kafka does.
    """
    twice = duplicates((resource.resource_type, resource.resource_name) for resource in request.resources)
    position: int | None = None
    results, changed = [], []
    for resource in request.resources:
        result = response_class.AlterConfigsResourceResponse(
            error_code=0,
            error_message=None,
            resource_type=resource.resource_type,
            resource_name=resource.resource_name,
        )
        results.append(result)
        try:
            if (resource.resource_type, resource.resource_name) in twice:
                raise BrokerError(Fault.INVALID_REQUEST, "each resource must appear at most once")
            written = _alter_topic(ctx, resource, bool(request.validate_only), overrides_after)
        except BrokerError as error:
            refuse(result, error)
            continue
        if written is not None:
            position = later(position, written)
            changed.append(result)
    return when_durable(ctx, position, response_class(throttle_time_ms=0, responses=results), changed)


def _alter_topic(ctx: Context, resource: Any, validate_only: bool, overrides_after: OverridesAfter) -> int | None:
    """Alter one topic; the log position of the change, None if there was nothing to change."""
    if resource.resource_type == BROKER:
        raise BrokerError(Fault.INVALID_REQUEST, "the node is configured by broker.yaml and a restart")
    if resource.resource_type != TOPIC:
        raise BrokerError(Fault.INVALID_REQUEST, f"unknown resource type {resource.resource_type}")
    name = resource.resource_name
    if not name:
        raise BrokerError(Fault.INVALID_REQUEST, "default topic resources are not allowed")
    check_topic_name(name)
    if duplicates(config.name for config in resource.configs):
        raise BrokerError(Fault.INVALID_REQUEST, "a config key appears more than once")
    topic = ctx.broker.topic(name)
    overrides = overrides_after(ctx, topic, resource)
    validate(overrides)
    topic = topic_named(ctx.broker, name)
    if overrides == topic.configs:
        return None
    written = ctx.broker.alter_configs(topic, overrides, validate_only=validate_only)
    return None if validate_only else written


def refuse_nulls(names: Collection[str]) -> None:
    """Raise BrokerError(INVALID_REQUEST) if any configuration came without a value."""
    if names:
        raise BrokerError(Fault.INVALID_REQUEST, f"null value not supported for: {', '.join(names)}")
