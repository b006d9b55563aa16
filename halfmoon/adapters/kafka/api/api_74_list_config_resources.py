"""ListConfigResources (74): what DescribeConfigs can be asked about (KIP-1142).

Version 0 lists client metrics subscriptions only (KIP-714). Groups are those that have configurations. Internal topics
are left out, as they are from Metadata's list of all topics.
"""

from __future__ import annotations

from typing import Any

from halfmoon.adapters.kafka.durable import tells_state
from halfmoon.adapters.kafka.errors import code
from halfmoon.adapters.kafka.protocol import ListConfigResourcesResponse, Slices
from halfmoon.adapters.kafka.registry import Context
from halfmoon.adapters.kafka.resources import (
    BROKER_LOGGER_TYPE,
    BROKER_TYPE,
    CLIENT_METRICS_TYPE,
    GROUP_TYPE,
    TOPIC_TYPE,
)
from halfmoon.errors import Fault
from halfmoon.services.configs.client_metrics import ClientMetrics
from halfmoon.services.configs.group_configs import GroupConfigs

KNOWN = {TOPIC_TYPE, BROKER_TYPE, BROKER_LOGGER_TYPE, CLIENT_METRICS_TYPE, GROUP_TYPE}


@tells_state()
def handle(ctx: Context, request: Any) -> Slices[object]:
    asked = {CLIENT_METRICS_TYPE} if ctx.api_version == 0 else set(request.resource_types) or KNOWN
    if not asked <= KNOWN:
        return ListConfigResourcesResponse(
            throttle_time_ms=0, error_code=code(Fault.UNSUPPORTED_VERSION), config_resources=[]
        )
    found: list[tuple[int, str]] = []
    if TOPIC_TYPE in asked:
        for topic in ctx.core.catalog.topics():
            if not topic.hidden:
                found.append((TOPIC_TYPE, topic.name))
            yield
    node = str(ctx.core.node_id)
    found += [(kind, node) for kind in (BROKER_TYPE, BROKER_LOGGER_TYPE) if kind in asked]
    if CLIENT_METRICS_TYPE in asked:
        found += [(CLIENT_METRICS_TYPE, name) for name in ctx.services.get(ClientMetrics).names()]
    if GROUP_TYPE in asked:
        found += [(GROUP_TYPE, name) for name in ctx.services.get(GroupConfigs).configured()]
    resource = ListConfigResourcesResponse.ConfigResource
    resources = []
    for kind, name in found:
        resources.append(resource(resource_type=kind, resource_name=name))
        yield
    return ListConfigResourcesResponse(throttle_time_ms=0, error_code=0, config_resources=resources)
