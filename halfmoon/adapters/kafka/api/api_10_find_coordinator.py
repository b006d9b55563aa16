"""FindCoordinator (10): which node looks after a group or a transactional id. There is one node, so it is this one.

Versions 4 and up ask for several keys at once (KIP-699). A share group's coordinator is found as that of every group;
that of a share group's single partition (KIP-932) is what brokers ask each other, and is refused.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from halfmoon.adapters.kafka.errors import NONE, code
from halfmoon.adapters.kafka.protocol import FindCoordinatorResponse
from halfmoon.adapters.kafka.registry import Context, api
from halfmoon.errors import Fault

GROUP, TRANSACTION = 0, 1
"""Key types; 2 is a share group's partition (KIP-932)."""

NO_NODE = -1


class _Refusal(NamedTuple):
    error_code: int
    message: str


@api(10, "FindCoordinator", 0, 6)
def find_coordinator(ctx: Context, request: Any) -> object:
    refusal = _refusal(request.key_type)
    node_id, host, port = (ctx.core.node_id, ctx.peer.host, ctx.peer.port) if refusal is None else (NO_NODE, "", -1)
    error_code, message = (NONE, None) if refusal is None else refusal
    if ctx.api_version < 4:
        return FindCoordinatorResponse(
            throttle_time_ms=0, error_code=error_code, error_message=message, node_id=node_id, host=host, port=port
        )
    coordinators = [
        FindCoordinatorResponse.Coordinator(
            key=key, node_id=node_id, host=host, port=port, error_code=error_code, error_message=message
        )
        for key in request.coordinator_keys
    ]
    return FindCoordinatorResponse(throttle_time_ms=0, coordinators=coordinators)


def _refusal(key_type: int) -> _Refusal | None:
    if key_type in (GROUP, TRANSACTION):
        return None
    return _Refusal(code(Fault.INVALID_REQUEST), f"no coordinator for keys of type {key_type}")
