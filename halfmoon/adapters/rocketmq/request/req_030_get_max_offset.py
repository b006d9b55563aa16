"""GET_MAX_OFFSET (30): the offset that a queue's next message gets."""

from __future__ import annotations

from halfmoon.adapters.rocketmq.answers import Answer
from halfmoon.adapters.rocketmq.registry import Call, request


@request(30, "GET_MAX_OFFSET")
def handle(call: Call) -> Answer:
    partition = call.node.queue(call.text("topic"), call.number("queueId"))
    return Answer(fields={"offset": str(partition.stable_offset)})
