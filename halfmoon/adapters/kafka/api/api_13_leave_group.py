"""LeaveGroup (13): members go, so that the others need not wait for their sessions to end.

From version 3 on several at once, each with its own error, and static ones by their instance id alone, which is how
operators remove them (KIP-345). Before that there is one member, and its error is the answer's.
"""

from __future__ import annotations

from typing import Any

from halfmoon.adapters.kafka.errors import NONE, code
from halfmoon.adapters.kafka.protocol import LeaveGroupResponse
from halfmoon.adapters.kafka.registry import Context
from halfmoon.errors import Fault
from halfmoon.services.groups.service import GroupService


def handle(ctx: Context, request: Any) -> object:
    if not request.group_id:
        return LeaveGroupResponse(throttle_time_ms=0, error_code=code(Fault.INVALID_GROUP_ID), members=[])
    if ctx.api_version < 3:
        [(_, _, fault)] = ctx.services.get(GroupService).leave(request.group_id, [(request.member_id, None)])
        return LeaveGroupResponse(throttle_time_ms=0, error_code=code(fault))
    leaving = [(member.member_id, member.group_instance_id) for member in request.members]
    members = [
        LeaveGroupResponse.MemberResponse(member_id=member_id, group_instance_id=instance_id, error_code=code(fault))
        for member_id, instance_id, fault in ctx.services.get(GroupService).leave(request.group_id, leaving)
    ]
    return LeaveGroupResponse(throttle_time_ms=0, error_code=NONE, members=members)
