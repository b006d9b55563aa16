"""UNREGISTER_CLIENT (35): a client leaves the groups it names."""

from __future__ import annotations

from halfmoon.adapters.rocketmq.answers import DONE, Answer
from halfmoon.adapters.rocketmq.registry import Call, request


@request(35, "UNREGISTER_CLIENT")
def handle(call: Call) -> Answer:
    producers, consumers = call.group("producerGroup", ""), call.group("consumerGroup", "")
    node = call.node
    if producers:
        node.members.producer_left(producers, call.connection)
    member = node.members.consumer_left(consumers, call.connection) if consumers else None
    if member is not None:
        node.locks.left(consumers, member.client_id, call.core.clock.mono_ms())
        node.locks_changed(consumers)
        node.consumer_left(consumers, member.client_id)
    return DONE
