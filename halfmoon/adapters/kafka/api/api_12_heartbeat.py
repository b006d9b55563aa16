"""Heartbeat (12): a member is alive, and asks whether it has to join again (REBALANCE_IN_PROGRESS).

In Kafka the answer comes at once, so a member learns of a rebalance up to an interval (3 s by default) later. Here it
waits for a rebalance, where the client is known to do without it meanwhile: Java's and librdkafka's send heartbeats
beside everything else, on a connection that they have for the coordinator. Others wait for the answer before they go on
with their records (KafkaJS), or nobody knows. Whatever comes next on the connection ends the wait, as with a fetch.

A connection that is younger than the wait may be is answered at once: where it does not last long, as the broker or the
network keeps failing, the client has to hear from us all the same, or takes its session for lost.
"""

from __future__ import annotations

from typing import Any

from halfmoon.adapters.kafka.errors import code
from halfmoon.adapters.kafka.protocol import HeartbeatResponse
from halfmoon.adapters.kafka.registry import Context, Deferred
from halfmoon.services.groups.messages import HeartbeatResult
from halfmoon.services.groups.service import GroupService

PATIENT = ("apache-kafka-java", "librdkafka", "confluent-kafka-")
"""How the names begin (KIP-511) of clients whose heartbeats may wait."""


def handle(ctx: Context, request: Any) -> object:
    groups, group, member_id = ctx.services.get(GroupService), request.group_id, request.member_id
    fault = groups.heartbeat(group, request.generation_id, member_id, request.group_instance_id)
    if fault is None and ctx.peer.software.startswith(PATIENT) and _is_steady(ctx):
        deferred = Deferred()

        def answer(result: HeartbeatResult) -> None:
            if not deferred.done:
                deferred.hurry = None  # it refers to us
                deferred.complete(HeartbeatResponse(throttle_time_ms=0, error_code=code(result.fault)))

        if groups.await_rebalance(group, member_id, answer):
            deferred.hurry = lambda: answer(HeartbeatResult(None))
            return deferred
    return HeartbeatResponse(throttle_time_ms=0, error_code=code(fault))


def _is_steady(ctx: Context) -> bool:
    return ctx.core.clock.mono_ms() - ctx.peer.since_ms >= ctx.core.settings.groups.heartbeat_wait_ms
