"""SyncGroup (14): the leader brings everybody's share, everybody gets their own.

From version 5 on a member says which protocol type and name it follows, and is told the group's (KIP-559).
"""

from __future__ import annotations

from typing import Any

from halfmoon.adapters.kafka.errors import code
from halfmoon.adapters.kafka.protocol import Slices, SyncGroupResponse
from halfmoon.adapters.kafka.registry import Context, Deferred
from halfmoon.services.groups.messages import Sync, SyncResult
from halfmoon.services.groups.service import GroupService


def handle(ctx: Context, request: Any) -> Slices[object]:
    assignments = {}
    for share in request.assignments:
        assignments[share.member_id] = bytes(share.assignment)
        yield
    sync = Sync(
        group=request.group_id,
        generation=request.generation_id,
        member_id=request.member_id,
        instance_id=request.group_instance_id,
        protocol_type=request.protocol_type,
        protocol=request.protocol_name,
        assignments=assignments,
    )
    deferred = Deferred()
    ctx.services.get(GroupService).sync(sync, lambda result: deferred.complete(_response(result)))
    return deferred


def _response(result: SyncResult) -> object:
    return SyncGroupResponse(
        throttle_time_ms=0,
        error_code=code(result.fault),
        protocol_type=result.protocol_type,
        protocol_name=result.protocol,
        assignment=result.assignment,
    )
