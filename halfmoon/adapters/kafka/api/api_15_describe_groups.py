"""DescribeGroups (15): state and members of classic groups; those of the new protocol are described by
ConsumerGroupDescribe (69), and are not found here.

A group that does not exist is Dead, not an error, until version 6 (KIP-1043): there it is GROUP_ID_NOT_FOUND as well.
"""

from __future__ import annotations

from typing import Any

from halfmoon.adapters.kafka.durable import tells_state
from halfmoon.adapters.kafka.errors import NONE, code
from halfmoon.adapters.kafka.operations import GROUP_OPERATIONS, allowed
from halfmoon.adapters.kafka.protocol import DescribeGroupsResponse, Slices
from halfmoon.adapters.kafka.registry import Context
from halfmoon.errors import Fault
from halfmoon.services.groups.names import CLASSIC_TYPE, GroupDescription
from halfmoon.services.groups.service import GroupService

DEAD = "Dead"

_Group = DescribeGroupsResponse.DescribedGroup


@tells_state()
def handle(ctx: Context, request: Any) -> Slices[object]:
    groups = []
    # A group that is named twice is answered once: its members take far more bytes than its name.
    for group_id in dict.fromkeys(request.groups):
        yield
        found = ctx.services.get(GroupService).describe(group_id)
        if found is None:
            groups.append(_missing(ctx, group_id, "not found"))
        elif found.type != CLASSIC_TYPE:
            groups.append(_missing(ctx, group_id, "is not a classic group"))
        else:
            asked = request.include_authorized_operations
            groups.append(_described(found, allowed(ctx, "group", group_id, GROUP_OPERATIONS) if asked else None))
    return DescribeGroupsResponse(throttle_time_ms=0, groups=groups)


def _missing(ctx: Context, group_id: str, why: str) -> object:
    known_error = ctx.api_version >= 6
    return _Group(
        error_code=code(Fault.GROUP_ID_NOT_FOUND) if known_error else NONE,
        error_message=f"Group {group_id} {why}." if known_error else None,
        group_id=group_id,
        group_state=DEAD,
        protocol_type="",
        protocol_data="",
        members=[],
        authorized_operations=None,
    )


def _described(group: GroupDescription, operations: frozenset[int] | None) -> object:
    return _Group(
        error_code=NONE,
        error_message=None,
        group_id=group.group,
        group_state=group.state,
        protocol_type=group.protocol_type,
        protocol_data=group.protocol,
        members=[
            _Group.DescribedGroupMember(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                member_metadata=member.metadata,
                member_assignment=member.assignment,
            )
            for member in group.members
        ],
        authorized_operations=operations,
    )
