"""GET_MIN_OFFSET (31): the first offset of a queue that can be read."""

from __future__ import annotations

from halfmoon.adapters.rocketmq.answers import Answer
from halfmoon.adapters.rocketmq.registry import Call, request


@request(31, "GET_MIN_OFFSET")
def handle(call: Call) -> Answer:
    partition = call.node.queue(call.text("topic"), call.number("queueId"))
    return Answer(fields={"offset": str(partition.start_offset)})
