"""UNREGISTER_CLIENT (35): a client leaves the groups it names."""

from __future__ import annotations

from halfmoon.adapters.rocketmq.registry import DONE, Answer, Call, request


@request(35, "UNREGISTER_CLIENT")
def handle(call: Call) -> Answer:
    producers, consumers = call.group("producerGroup", ""), call.group("consumerGroup", "")
    node = call.node
    if producers:
        node.members.producer_left(producers, call.connection)
    if consumers and node.members.consumer_left(consumers, call.connection):
        node.progress.write(consumers)
        node.tell_consumers(consumers)
    return DONE
