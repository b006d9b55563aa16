"""Which APIs ask whether a group may be read, and how they say no.

What a request does with topics is asked where the handler finds them (`Context.check`): one refused topic leaves the
others of the request alone. A request that is about one group is asked about here, before its handler sees it.

Operations: KafkaApis and RequestHandlerHelper (Apache Kafka 4).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from halfmoon.adapters.kafka.errors import code
from halfmoon.adapters.kafka.protocol import (
    ConsumerGroupHeartbeatResponse,
    HeartbeatResponse,
    JoinGroupResponse,
    LeaveGroupResponse,
    ShareGroupHeartbeatResponse,
    SyncGroupResponse,
)
from halfmoon.adapters.kafka.registry import Context
from halfmoon.adapters.kafka.routes import Route
from halfmoon.errors import BrokerError

Handler = Callable[[Context, Any], object]

_REFUSED: dict[int, Callable[[int, str], object]] = {
    11: lambda error, _: JoinGroupResponse(
        throttle_time_ms=0, error_code=error, generation_id=-1, protocol_type=None, protocol_name="", leader="",
        skip_assignment=False, member_id="", members=[],
    ),
    12: lambda error, _: HeartbeatResponse(throttle_time_ms=0, error_code=error),
    13: lambda error, _: LeaveGroupResponse(throttle_time_ms=0, error_code=error, members=[]),
    14: lambda error, _: SyncGroupResponse(
        throttle_time_ms=0, error_code=error, protocol_type=None, protocol_name=None, assignment=b""
    ),
    68: lambda error, message: ConsumerGroupHeartbeatResponse(
        throttle_time_ms=0, error_code=error, error_message=message, member_id=None, member_epoch=0,
        heartbeat_interval_ms=0, assignment=None,
    ),
    76: lambda error, message: ShareGroupHeartbeatResponse(
        throttle_time_ms=0, error_code=error, error_message=message, member_id=None, member_epoch=0,
        heartbeat_interval_ms=0, assignment=None,
    ),
}  # fmt: skip
"""API key → the answer with an error code and a message."""


def guarded(routes: dict[int, Route]) -> dict[int, Route]:
    """The routes, of which those about a group ask first."""
    return {
        number: replace(route, handler=_guard(route.handler, _REFUSED[route.key])) if route.key in _REFUSED else route
        for number, route in routes.items()
    }


def _guard(handler: Handler, refused: Callable[[int, str], object]) -> Handler:
    def handle(ctx: Context, request: Any) -> object:
        try:
            ctx.check("read", "group", request.group_id)
        except BrokerError as error:
            return refused(code(error.fault), error.message)
        return handler(ctx, request)

    return handle
