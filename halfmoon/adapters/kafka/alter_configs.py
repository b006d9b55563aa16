"""What AlterConfigs and IncrementalAlterConfigs share: which resources may be altered, and how that is answered.

Rules: ConfigAdminManager.preprocess, then ControllerConfigurationValidator, then the check that the topic exists. Each
resource succeeds or fails for itself.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, TypeAlias

from halfmoon.adapters.kafka.duplicates import duplicates, duplicates_in_slices
from halfmoon.adapters.kafka.durable import refuse
from halfmoon.adapters.kafka.protocol import Slices
from halfmoon.adapters.kafka.registry import Context
from halfmoon.adapters.kafka.resources import BROKER_LOGGER_TYPE, Resource, resource
from halfmoon.errors import BrokerError, Fault

OverridesAfter: TypeAlias = Callable[[Resource, Any], dict[str, str]]
Loggers: TypeAlias = Callable[[Context, Any, bool], None]


def alter(
    ctx: Context, request: Any, response_class: Any, overrides_after: OverridesAfter, loggers: Loggers | None = None
) -> Slices[object]:
    """The answer to an alter request. `overrides_after(resource, asked)` says what a resource is to override.

    It raises BrokerError where something wrong is asked for, and must do so for a missing topic too, so that a wrong
    configuration is named before a missing topic, as Kafka does. `loggers(ctx, asked, validate_only)` changes levels.
    """
    twice = yield from duplicates_in_slices((asked.resource_type, asked.resource_name) for asked in request.resources)
    results = []
    for asked in request.resources:
        yield
        result = response_class.AlterConfigsResourceResponse(
            error_code=0,
            error_message=None,
            resource_type=asked.resource_type,
            resource_name=asked.resource_name,
        )
        results.append(result)
        try:
            if (asked.resource_type, asked.resource_name) in twice:
                raise BrokerError(Fault.INVALID_REQUEST, "each resource must appear at most once")
            if duplicates(config.name for config in asked.configs):
                raise BrokerError(Fault.INVALID_REQUEST, "a config key appears more than once")
            if asked.resource_type == BROKER_LOGGER_TYPE and loggers is not None:
                loggers(ctx, asked, bool(request.validate_only))
                continue
            _alter(ctx, asked, bool(request.validate_only), overrides_after)
        except BrokerError as error:
            refuse(result, error)
    return response_class(throttle_time_ms=0, responses=results)


def _alter(ctx: Context, asked: Any, validate_only: bool, overrides_after: OverridesAfter) -> None:
    """Alter one resource, if there is anything to change. Raises BrokerError."""
    found = resource(ctx, asked.resource_type, asked.resource_name)
    found.check_name()
    overrides = overrides_after(found, asked)
    unchanged = overrides == found.overrides()
    found.alter(overrides, validate_only=validate_only or unchanged)


def refuse_nulls(names: Collection[str]) -> None:
    """Raise BrokerError(INVALID_REQUEST) if any configuration came without a value."""
    if names:
        raise BrokerError(Fault.INVALID_REQUEST, f"null value not supported for: {', '.join(names)}")
