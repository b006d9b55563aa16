"""ConsumerGroupHeartbeat (68): all that a member of a new consumer group has to say (KIP-848). The rules are in
services/groups/consumer/heartbeats.py.

Version 1 adds patterns of topics, and members make up their own ids (KIP-1082). Topics stand here by id; a partition of
a topic that does not exist any more is nobody's, so it is left out on the way in.
"""

from __future__ import annotations

from functools import partial
from typing import Any
from uuid import UUID

from halfmoon.adapters.kafka.errors import NONE, code
from halfmoon.adapters.kafka.protocol import ConsumerGroupHeartbeatResponse, Slices
from halfmoon.adapters.kafka.registry import Context, Deferred
from halfmoon.adapters.tcp.access import Rights
from halfmoon.errors import Fault
from halfmoon.schema.groups import JOIN, Places
from halfmoon.services.groups.consumer.messages import ConsumerHeartbeat
from halfmoon.services.groups.messages import ConsumerHeartbeatResult
from halfmoon.services.groups.service import GroupService

_Assignment = ConsumerGroupHeartbeatResponse.Assignment


def handle(ctx: Context, request: Any) -> Slices[object]:
    if ctx.api_version >= 1 and request.member_epoch == JOIN and not request.member_id:
        return _response(ctx, ConsumerHeartbeatResult(Fault.INVALID_REQUEST, "MemberId can't be empty."))
    topics = request.subscribed_topic_names
    beat = ConsumerHeartbeat(
        group=request.group_id,
        member_id=request.member_id,
        epoch=request.member_epoch,
        instance_id=request.instance_id,
        rack=request.rack_id,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        topics=None if topics is None else tuple(topics),
        regex=request.subscribed_topic_regex,
        assignor=request.server_assignor,
        owned=None if request.topic_partitions is None else (yield from _owned(ctx, request.topic_partitions)),
        client_id=ctx.client_id or "",
        # Kafka writes addresses as Java prints them, and tools show them so.
        client_host=f"/{ctx.peer.peer_host}",
        describes=None if ctx.rights is None else partial(_describes, ctx.rights),
    )
    groups = ctx.services.get(GroupService)
    if groups.takes_long(beat):
        beat = yield from groups.announce(beat)
    deferred = Deferred()
    groups.consumer_heartbeat(beat, lambda result: deferred.complete(_response(ctx, result)))
    return deferred


def _describes(rights: Rights, topic: str) -> bool:
    return rights.allows(("describe", "topic", topic))


def _owned(ctx: Context, owned: Any) -> Slices[Places]:
    found = []
    for each in owned:
        topic = None if each.topic_id is None else ctx.core.catalog.topic_by_id(each.topic_id.bytes)
        # One of a topic that is unknown counts only where nothing may be owned at all.
        number = -1 if topic is None else topic.number
        found += [(number, index) for index in each.partitions]
        yield
    return frozenset(found)


def _response(ctx: Context, result: ConsumerHeartbeatResult) -> object:
    assignment = None
    if result.assigned is not None:
        by_topic: dict[int, list[int]] = {}
        for number, index, _ in result.assigned:
            by_topic.setdefault(number, []).append(index)
        topics = [(ctx.core.catalog.by_number.get(number), indexes) for number, indexes in by_topic.items()]
        assignment = _Assignment(
            topic_partitions=[
                _Assignment.TopicPartitions(topic_id=UUID(bytes=topic.id), partitions=indexes)
                for topic, indexes in topics
                if topic is not None
            ]
        )
    return ConsumerGroupHeartbeatResponse(
        throttle_time_ms=0,
        error_code=NONE if result.fault is None else code(result.fault),
        error_message=result.message,
        member_id=result.member_id or None,
        member_epoch=result.epoch,
        heartbeat_interval_ms=result.interval_ms,
        assignment=assignment,
    )
