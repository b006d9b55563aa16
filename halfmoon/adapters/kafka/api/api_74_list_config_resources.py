"""ListConfigResources (74): what DescribeConfigs can be asked about (KIP-1142).

Version 0 lists client metrics subscriptions only (KIP-714), of which there are none. Internal topics are left out, as
they are from Metadata's list of all topics.
"""

from __future__ import annotations

from typing import Any

from halfmoon.adapters.kafka.alter_configs import BROKER, TOPIC
from halfmoon.adapters.kafka.errors import code
from halfmoon.adapters.kafka.protocol import ListConfigResourcesResponse
from halfmoon.adapters.kafka.registry import Context, api
from halfmoon.core.errors import Fault

BROKER_LOGGER, CLIENT_METRICS, GROUP = 8, 16, 32
KNOWN = {TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP}


@api(74, "ListConfigResources", 0, 1)
def list_config_resources(ctx: Context, request: Any) -> object:
    asked = {CLIENT_METRICS} if ctx.api_version == 0 else set(request.resource_types) or KNOWN
    if not asked <= KNOWN:
        return ListConfigResourcesResponse(
            throttle_time_ms=0, error_code=code(Fault.UNSUPPORTED_VERSION), config_resources=[]
        )
    found: list[tuple[int, str]] = []
    if TOPIC in asked:
        found += [(TOPIC, topic.name) for topic in ctx.broker.topics() if not topic.internal]
    if BROKER in asked:
        found.append((BROKER, str(ctx.broker.node_id)))
    resource = ListConfigResourcesResponse.ConfigResource
    return ListConfigResourcesResponse(
        throttle_time_ms=0,
        error_code=0,
        config_resources=[resource(resource_type=kind, resource_name=name) for kind, name in found],
    )
