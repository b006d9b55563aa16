"""ShareGroupHeartbeat (76): joining a share group, staying in it, hearing what to read, leaving it (KIP-932).

A member that is not known, as after a restart of the core, is told so and joins again at once. The answer that says a
new epoch leaves when that is durable.

Rules: GroupCoordinatorService.shareGroupHeartbeat, throwIfShareGroupHeartbeatRequestIsInvalid.
"""

from __future__ import annotations

import uuid
from typing import Any

from halfmoon.adapters.kafka.errors import NONE
from halfmoon.adapters.kafka.group_errors import coordinator_code
from halfmoon.adapters.kafka.protocol import ShareGroupHeartbeatResponse
from halfmoon.adapters.kafka.registry import Context
from halfmoon.errors import BrokerError, Fault
from halfmoon.services.share.membership import LEAVE_EPOCH, Assignment, HeartbeatRequest
from halfmoon.services.share.service import ShareService

_Assignment = ShareGroupHeartbeatResponse.Assignment
_Topic = _Assignment.TopicPartitions


def handle(ctx: Context, request: Any) -> object:
    shares = ctx.services.get(ShareService)
    try:
        if not request.group_id:
            raise BrokerError(Fault.INVALID_REQUEST, "GroupId can't be empty.")
        if not request.member_id:
            raise BrokerError(Fault.INVALID_REQUEST, "MemberId can't be empty.")
        if request.member_epoch < LEAVE_EPOCH:
            raise BrokerError(Fault.INVALID_REQUEST, f"MemberEpoch is {request.member_epoch}.")
        if request.member_epoch == LEAVE_EPOCH:
            position = shares.leave(request.group_id, request.member_id)
            answer = _answer(ctx, request, LEAVE_EPOCH, None)
        else:
            topics = request.subscribed_topic_names
            response, position = shares.heartbeat(
                HeartbeatRequest(
                    request.group_id, request.member_id, request.member_epoch, request.rack_id,
                    None if topics is None else tuple(topics), ctx.client_id or "", ctx.peer.peer_host,
                )
            )  # fmt: skip
            answer = _answer(ctx, request, response.epoch, response.assignment)
    except BrokerError as error:
        return _refused(error)
    return ctx.after(position, answer, _refused)


def _answer(ctx: Context, request: Any, epoch: int, assignment: Assignment | None) -> object:
    options = ctx.services.get(ShareService).options(request.group_id)
    assigned = None
    if assignment is not None:
        topics = []
        for name, partitions in assignment.items():
            topic = ctx.core.catalog.topic(name)
            if topic is not None:
                topics.append(_Topic(topic_id=uuid.UUID(bytes=topic.id), partitions=list(partitions)))
        assigned = _Assignment(topic_partitions=topics)
    return ShareGroupHeartbeatResponse(
        throttle_time_ms=0, error_code=NONE, error_message=None, member_id=request.member_id, member_epoch=epoch,
        heartbeat_interval_ms=options.heartbeat_interval_ms if epoch != LEAVE_EPOCH else 0, assignment=assigned,
    )  # fmt: skip


def _refused(error: Exception) -> object:
    return ShareGroupHeartbeatResponse(
        throttle_time_ms=0, error_code=coordinator_code(error), error_message=str(error), member_id=None,
        member_epoch=0, heartbeat_interval_ms=0, assignment=None,
    )  # fmt: skip
