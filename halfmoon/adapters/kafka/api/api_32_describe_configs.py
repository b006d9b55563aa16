"""DescribeConfigs (32): what holds for a topic, this node, a group, and where it comes from.

Rules: ConfigHelper.describeConfigs. A key that is asked for and does not exist is left out of the answer.
"""

from __future__ import annotations

from typing import Any

from halfmoon.adapters.kafka import loggers
from halfmoon.adapters.kafka.config_entries import TYPE_CODES, Entry, logger_entries
from halfmoon.adapters.kafka.durable import refuse, tells_state
from halfmoon.adapters.kafka.protocol import DescribeConfigsResponse, Slices
from halfmoon.adapters.kafka.registry import Context
from halfmoon.adapters.kafka.resources import BROKER_LOGGER_TYPE, CLIENT_METRICS_TYPE, GROUP_TYPE, TOPIC_TYPE, resource
from halfmoon.errors import BrokerError, Fault

_Result = DescribeConfigsResponse.DescribeConfigsResult
_Config = _Result.DescribeConfigsResourceResult


NAMED_AT_WILL = (GROUP_TYPE, CLIENT_METRICS_TYPE)
"""Resources that need not exist to be described."""
MOST_AT_WILL = 1_000
"""So many of them are answered at a time: an answer is a hundred times the size of the question."""


@tells_state()
def handle(ctx: Context, request: Any) -> Slices[object]:
    results = []
    anything = 0
    alike: dict[object, list[Any]] = {}
    """What was found for topics that say the same: with thousands of them, most do."""
    # A resource that is named twice is answered once: its configuration is hundreds of times the size of its name.
    for asked in {(each.resource_type, each.resource_name): each for each in request.resources}.values():
        yield
        result = _Result(
            error_code=0,
            error_message=None,
            resource_type=asked.resource_type,
            resource_name=asked.resource_name,
            configs=[],
        )
        results.append(result)
        anything += asked.resource_type in NAMED_AT_WILL
        try:
            if anything > MOST_AT_WILL and asked.resource_type in NAMED_AT_WILL:
                raise BrokerError(Fault.INVALID_REQUEST, f"ask for at most {MOST_AT_WILL} groups at a time")
            result.configs = _configs(ctx, asked, request, alike)
        except BrokerError as error:
            refuse(result, error)
    return DescribeConfigsResponse(throttle_time_ms=0, results=results)


def _configs(ctx: Context, asked: Any, request: Any, alike: dict[object, list[Any]]) -> list[Any]:
    keys = frozenset(asked.configuration_keys or ())
    topic = ctx.core.catalog.topic(asked.resource_name) if asked.resource_type == TOPIC_TYPE else None
    same = None if topic is None or topic.view is not None else (frozenset(topic.configs.items()), keys)
    if same is not None and same in alike:
        return alike[same]
    found = [_encodable(entry, request) for entry in _entries(ctx, asked) if not keys or entry.name in keys]
    if same is not None:
        alike[same] = found
    return found


def _entries(ctx: Context, asked: Any) -> list[Entry]:
    if asked.resource_type == BROKER_LOGGER_TYPE:
        if asked.resource_name != str(ctx.core.node_id):
            raise BrokerError(
                Fault.INVALID_REQUEST,
                f"unexpected broker id: expected {ctx.core.node_id}, received {asked.resource_name}",
            )
        return logger_entries(loggers.levels())
    return resource(ctx, asked.resource_type, asked.resource_name).entries()


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
