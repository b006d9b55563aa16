"""JoinGroup (11): become a member of a group's next generation. The rules are in services/groups/joining.py.

Versions: 1 rebalance time-out, 4 member id required (KIP-394), 5 static members (KIP-345), 7 protocol type in the
answer (KIP-559), 8 reason (KIP-800), 9 skip assignment (KIP-814). The answer waits until the whole group has joined.
"""

from __future__ import annotations

from typing import Any

from halfmoon.adapters.kafka.errors import code
from halfmoon.adapters.kafka.protocol import JoinGroupResponse
from halfmoon.adapters.kafka.registry import Context, Deferred
from halfmoon.services.groups.messages import Join, JoinResult
from halfmoon.services.groups.service import GroupService


def handle(ctx: Context, request: Any) -> object:
    version = ctx.api_version
    join = Join(
        group=request.group_id,
        member_id=request.member_id,
        instance_id=request.group_instance_id,
        client_id=ctx.client_id or "",
        # Kafka writes addresses as Java prints them, and tools show them so.
        client_host=f"/{ctx.peer.peer_host}",
        session_timeout_ms=request.session_timeout_ms,
        rebalance_timeout_ms=request.session_timeout_ms if version == 0 else request.rebalance_timeout_ms,
        protocol_type=request.protocol_type,
        protocols=tuple((protocol.name, bytes(protocol.metadata)) for protocol in request.protocols),
        require_known_member=version >= 4,
        can_skip_assignment=version >= 9,
        reason=request.reason or "",
    )
    deferred = Deferred()
    ctx.services.get(GroupService).join(join, lambda result: deferred.complete(_response(version, result)))
    return deferred


def _response(version: int, result: JoinResult) -> object:
    return JoinGroupResponse(
        throttle_time_ms=0,
        error_code=code(result.fault),
        generation_id=result.generation,
        protocol_type=result.protocol_type,
        # The name may be null only from version 7 on.
        protocol_name=result.protocol or (None if version >= 7 else ""),
        leader=result.leader,
        skip_assignment=result.skip_assignment,
        member_id=result.member_id,
        members=[
            JoinGroupResponse.JoinGroupResponseMember(
                member_id=member.member_id, group_instance_id=member.instance_id, metadata=member.metadata
            )
            for member in result.members
        ],
    )
