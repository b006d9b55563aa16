"""Heartbeat (12): a member is alive, and asks whether it has to join again (REBALANCE_IN_PROGRESS)."""

from __future__ import annotations

from typing import Any

from halfmoon.adapters.kafka.errors import code
from halfmoon.adapters.kafka.protocol import HeartbeatResponse
from halfmoon.adapters.kafka.registry import Context, api


@api(12, "Heartbeat", 0, 4)
def heartbeat(ctx: Context, request: Any) -> object:
    fault = ctx.broker.groups.heartbeat(
        request.group_id, request.generation_id, request.member_id, request.group_instance_id
    )
    return HeartbeatResponse(throttle_time_ms=0, error_code=code(fault))
