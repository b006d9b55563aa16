"""UNREGISTER_CLIENT (35): a client leaves the groups it names."""

from __future__ import annotations

from halfmoon.adapters.rocketmq.registry import DONE, Answer, Call, request


@request(35, "UNREGISTER_CLIENT")
def handle(call: Call) -> Answer:
    producers, consumers = call.group("producerGroup", ""), call.group("consumerGroup", "")
    node = call.node
    if producers:
        node.members.producer_left(producers, call.connection)
    member = node.members.consumer_left(consumers, call.connection) if consumers else None
    if member is not None:
        node.progress.write(consumers)
        # It has unlocked its queues before, but RocketMQ's Java client may have locked them once more: a renewal that
        # was under way in another of its threads then comes after the unlock.
        node.locks.unlock_all(consumers, member.client_id)
        node.tell_consumers(consumers)
    return DONE
