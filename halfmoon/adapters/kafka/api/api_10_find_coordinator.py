"""FindCoordinator (10): which node looks after a group or a transactional id.

Versions 4 and up ask for several keys at once (KIP-699). A share group's coordinator is found as that of every group;
that of a share group's single partition (KIP-932) is what brokers ask each other, and is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from halfmoon.adapters.kafka.errors import NONE, code
from halfmoon.adapters.kafka.protocol import FindCoordinatorResponse, Slices
from halfmoon.adapters.kafka.registry import Context
from halfmoon.errors import BrokerError, Fault
from halfmoon.services.groups.service import GroupService
from halfmoon.services.transactions.service import TransactionService

GROUP, TRANSACTION = 0, 1
"""Key types; 2 is a share group's partition (KIP-932)."""

NO_NODE = -1
_COORDINATED_BY: Mapping[int, tuple[type[object], str, Fault]] = {
    GROUP: (GroupService, "groups", Fault.UNSUPPORTED_VERSION),
    # librdkafka asks for ever after any error but this.
    TRANSACTION: (TransactionService, "transactions", Fault.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
}


class _Refusal(NamedTuple):
    error_code: int
    message: str


def handle(ctx: Context, request: Any) -> Slices[object]:
    refusal = _refusal(ctx, request.key_type)
    if ctx.api_version < 4:
        return FindCoordinatorResponse(throttle_time_ms=0, **_found(ctx, request.key, refusal))
    coordinators = []
    for key in request.coordinator_keys:
        coordinators.append(FindCoordinatorResponse.Coordinator(key=key, **_found(ctx, key, refusal)))
        yield
    return FindCoordinatorResponse(throttle_time_ms=0, coordinators=coordinators)


def _found(ctx: Context, key: str, refusal: _Refusal | None) -> dict[str, Any]:
    if refusal is None:
        try:
            other = ctx.core.owners.coordinator_of(key)
        except BrokerError as error:
            refusal = _Refusal(code(error.fault), error.message)
        else:
            host, port = (ctx.peer.host, ctx.peer.port) if other is None else ctx.peer.address_of(other)
            node_id = ctx.core.node_id if other is None else other.node_id
            return {"error_code": NONE, "error_message": None, "node_id": node_id, "host": host, "port": port}
    return {
        "error_code": refusal.error_code, "error_message": refusal.message, "node_id": NO_NODE, "host": "", "port": -1,
    }  # fmt: skip


def _refusal(ctx: Context, key_type: int) -> _Refusal | None:
    service = _COORDINATED_BY.get(key_type)
    if service is None:
        return _Refusal(code(Fault.INVALID_REQUEST), f"no coordinator for keys of type {key_type}")
    kind, name, fault = service
    if ctx.services.find(kind) is None:
        return _Refusal(code(fault), f"services.{name} is off in broker.yaml")
    return None
