"""Metadata (3): the node, the cluster, and the topics with their partitions.

Topics are asked for by name, from version 12 on also by id; null asks for all that are not internal, and an empty
list for none (in version 0, which has no null, for all). A missing topic is created where both broker.yaml and the
request allow it, or a feature provides it (docs/decisions/0112); then the answer waits until the log has it. Kafka
answers UNKNOWN_TOPIC_OR_PARTITION instead and lets the client ask again.

Rules: KafkaApis.handleTopicMetadataRequest. The response is put together from remembered bytes, see `metadata_bytes`.
"""

from __future__ import annotations

from typing import Any

from halfmoon.adapters.kafka.errors import code, code_of
from halfmoon.adapters.kafka.metadata_bytes import FLEXIBLE, ZERO_ID, error_bytes, head_bytes, tail_bytes, topic_bytes
from halfmoon.adapters.kafka.operations import (
    CLUSTER_BITS,
    CLUSTER_OPERATIONS,
    NOT_ASKED,
    TOPIC_BITS,
    TOPIC_OPERATIONS,
    allowed,
    bits,
)
from halfmoon.adapters.kafka.protocol import Slices, decode_request_slices
from halfmoon.adapters.kafka.registry import Context
from halfmoon.adapters.tcp.access import CLUSTER
from halfmoon.core.topic_names import is_legal
from halfmoon.errors import BrokerError, Fault
from halfmoon.kafka_wire.primitives import encode_array_size
from halfmoon.services.internal_topics.offering import OfferedTopics

KEY = 3


def handle(ctx: Context, body: memoryview) -> Slices[object]:
    """The response's body as bytes, or a Deferred of them if a topic had to be created first."""
    version = ctx.api_version
    request = yield from decode_request_slices(KEY, version, body)
    operations = TOPIC_BITS if request.include_topic_authorized_operations else NOT_ASKED
    rights = ctx.rights
    if request.topics is None or (version == 0 and not request.topics):
        found = []
        for each in ctx.core.catalog.topics():
            if not each.hidden and (rights is None or ctx.allows("describe", "topic", each.name)):
                found.append(_describe(ctx, each, operations))
            yield
        return _response(ctx, request, found)
    position: int | None = None
    asked: dict[tuple[str | None, bytes], bytes] = {}
    created: list[tuple[str | None, bytes]] = []
    for entry in request.topics:
        yield
        key = (entry.name, ZERO_ID if entry.topic_id is None else entry.topic_id.bytes)
        if key in asked:
            continue
        topic, fault = _find(ctx, version, *key)
        if rights is not None and _is_hidden(ctx, topic, entry.name):
            asked[key] = error_bytes(version, code(Fault.TOPIC_AUTHORIZATION_FAILED), *key)
            continue
        if fault is Fault.UNKNOWN_TOPIC_OR_PARTITION and (offered := _offered(ctx, entry.name)) is not None:
            topic, position = offered
            created.append(key)
        elif fault is Fault.UNKNOWN_TOPIC_OR_PARTITION and _may_create(ctx, request, entry.name):
            try:
                if not ctx.core.features.topics.provides(entry.name):  # else the broker makes it, as it always does
                    ctx.check_either(("create", "cluster", CLUSTER), ("create", "topic", entry.name))
                topic, position = ctx.core.administration.create_topic(entry.name, -1, {})
                created.append(key)
            except BrokerError as error:
                fault = error.fault
        asked[key] = error_bytes(version, code(fault), *key) if topic is None else _describe(ctx, topic, operations)
    if position is None:
        return _response(ctx, request, asked.values())

    def on_error(error: Exception) -> object:
        for key in created:
            asked[key] = error_bytes(version, code_of(error), *key)
        return _response(ctx, request, asked.values())

    return ctx.after(position, _response(ctx, request, asked.values()), on_error)


def _find(ctx: Context, version: int, name: str | None, topic_id: bytes) -> tuple[Any, Fault | None]:
    """The topic, or why there is none."""
    if topic_id != ZERO_ID:
        if version < 12:
            return None, Fault.INVALID_REQUEST
        topic = ctx.core.catalog.topic_by_id(topic_id)
        return topic, None if topic else Fault.UNKNOWN_TOPIC_ID
    if name is None:
        return None, Fault.INVALID_REQUEST
    topic = ctx.core.catalog.topic(name)
    if topic is not None:
        return topic, None
    return None, Fault.UNKNOWN_TOPIC_OR_PARTITION if is_legal(name) else Fault.INVALID_TOPIC_EXCEPTION


def _offered(ctx: Context, name: str) -> tuple[Any, int] | None:
    """An internal topic of Kafka's that is made when somebody asks for it first."""
    internal = ctx.services.find(OfferedTopics)
    try:
        return None if internal is None else internal.offer(name)
    except BrokerError:
        return None


def _is_hidden(ctx: Context, topic: Any, name: str | None) -> bool:
    """Whether plugins refuse to describe it, be it there or not; but an id that nobody has says nothing."""
    named = name if topic is None else topic.name
    return named is not None and not ctx.demands(("describe", "topic", named))


def _may_create(ctx: Context, request: Any, name: str) -> bool:
    if ctx.core.settings.topics.auto_create and request.allow_auto_topic_creation:
        return True
    return ctx.core.features.topics.provides(name)


def _describe(ctx: Context, topic: Any, operations: int) -> bytes:
    core = ctx.core
    if ctx.rights is not None and operations != NOT_ASKED:
        operations = bits(allowed(ctx, "topic", topic.name, TOPIC_OPERATIONS))
    return topic_bytes(
        ctx.api_version,
        topic.name,
        topic.id,
        topic.internal,
        len(topic.partitions),
        core.node_id,
        core.generation,
        operations,
        core.owners.leaders_of(topic),
    )


def _response(ctx: Context, request: Any, topics: Any) -> bytes:
    version = ctx.api_version
    core = ctx.core
    others = [(other.node_id, *ctx.peer.address_of(other), other.rack) for other in core.owners.listed()]
    operations = CLUSTER_BITS if request.include_cluster_authorized_operations else NOT_ASKED
    if ctx.rights is not None and operations != NOT_ASKED:
        may = ctx.allows("describe", "cluster", CLUSTER)
        operations = bits(allowed(ctx, "cluster", CLUSTER, CLUSTER_OPERATIONS)) if may else 0
    return b"".join(
        [
            head_bytes(version, core.node_id, ctx.peer.host, ctx.peer.port, core.cluster_id, others, core.owners.rack),
            encode_array_size(len(topics), version >= FLEXIBLE),
            *topics,
            tail_bytes(version, operations),
        ]
    )
