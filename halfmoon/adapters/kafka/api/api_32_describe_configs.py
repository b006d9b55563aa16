"""DescribeConfigs (32): what holds for a topic or for this node, and where it comes from.

Rules: ConfigHelper.describeConfigs. A key that is asked for and does not exist is left out of the answer.
"""

from __future__ import annotations

from typing import Any

from halfmoon.adapters.kafka.alter_configs import BROKER, TOPIC
from halfmoon.adapters.kafka.config_entries import TYPE_CODES, Entry, node_entries, topic_entries, view_entries
from halfmoon.adapters.kafka.durable import refuse
from halfmoon.adapters.kafka.lookup import topic_named
from halfmoon.adapters.kafka.protocol import DescribeConfigsResponse
from halfmoon.adapters.kafka.registry import Context, api
from halfmoon.core.errors import BrokerError, Fault
from halfmoon.core.topic_names import check_topic_name

_Result = DescribeConfigsResponse.DescribeConfigsResult
_Config = _Result.DescribeConfigsResourceResult


@api(32, "DescribeConfigs", 1, 4)
def describe_configs(ctx: Context, request: Any) -> object:
    results = []
    # A resource that is named twice is answered once: its configuration is hundreds of times the size of its name.
    for resource in {(each.resource_type, each.resource_name): each for each in request.resources}.values():
        result = _Result(
            error_code=0,
            error_message=None,
            resource_type=resource.resource_type,
            resource_name=resource.resource_name,
            configs=[],
        )
        results.append(result)
        try:
            entries = _entries(ctx, resource)
        except BrokerError as error:
            refuse(result, error)
            continue
        keys = set(resource.configuration_keys or ())
        result.configs = [_encodable(entry, request) for entry in entries if not keys or entry.name in keys]
    return DescribeConfigsResponse(throttle_time_ms=0, results=results)


def _entries(ctx: Context, resource: Any) -> list[Entry]:
    name = resource.resource_name
    if resource.resource_type == TOPIC:
        check_topic_name(name)
        topic = topic_named(ctx.broker, name)
        entries = topic_entries(topic.configs, ctx.broker.settings)
        if topic.view is not None:
            entries += view_entries(ctx.broker, topic)
        return entries
    if resource.resource_type == BROKER:
        if name == str(ctx.broker.node_id):
            return node_entries(ctx.broker, ctx.peer.host, ctx.peer.port)
        if not name:
            return []  # the dynamic default of all brokers: nothing is dynamic here
        raise BrokerError(
            Fault.INVALID_REQUEST, f"unexpected broker id: expected {ctx.broker.node_id} or nothing, received {name}"
        )
    raise BrokerError(Fault.INVALID_REQUEST, f"unsupported resource type {resource.resource_type}")


def _encodable(entry: Entry, request: Any) -> Any:
    synonyms = entry.synonyms if request.include_synonyms else []
    return _Config(
        name=entry.name,
        value=entry.value,
        read_only=entry.read_only,
        config_source=entry.source,
        is_sensitive=False,
        synonyms=[_Config.DescribeConfigsSynonym(name=s.name, value=s.value, source=s.source) for s in synonyms],
        config_type=TYPE_CODES[entry.kind],
        documentation=entry.documentation if request.include_documentation else None,
    )
