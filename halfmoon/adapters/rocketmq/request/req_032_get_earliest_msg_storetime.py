"""GET_EARLIEST_MSG_STORETIME (32): when the first message of a queue was stored; −1 where it has none."""

from __future__ import annotations

from halfmoon.adapters.rocketmq.answers import Answer
from halfmoon.adapters.rocketmq.registry import Call, request
from halfmoon.adapters.rocketmq.store_times import frame_at
from halfmoon.core.storage.frame_reading import WholeFrame


@request(32, "GET_EARLIEST_MSG_STORETIME")
def handle(call: Call) -> None:
    partition = call.node.queue(call.text("topic"), call.number("queueId"))

    def answered(whole: WholeFrame | None) -> Answer:
        return Answer(fields={"timestamp": str(-1 if whole is None else whole.frame.store_ms)})

    call.work_out(frame_at(call.core.frames, partition, partition.start_offset), answered)
