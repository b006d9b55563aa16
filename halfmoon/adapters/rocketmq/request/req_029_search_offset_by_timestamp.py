"""SEARCH_OFFSET_BY_TIMESTAMP (29): the offset of the first message stored at a time or later; the queue's end where
there is none. With the boundary UPPER, the last one stored at that time or earlier."""

from __future__ import annotations

from halfmoon.adapters.rocketmq.answers import Answer
from halfmoon.adapters.rocketmq.registry import Call, request
from halfmoon.adapters.rocketmq.store_times import first_stored_since


@request(29, "SEARCH_OFFSET_BY_TIMESTAMP")
def handle(call: Call) -> None:
    partition = call.node.queue(call.text("topic"), call.number("queueId"))
    store_ms = call.number("timestamp")
    upper = call.text("boundaryType", "LOWER").upper() == "UPPER"

    def answered(offset: int) -> Answer:
        if upper and offset < partition.stable_offset:
            offset = max(offset - 1, partition.start_offset)
        return Answer(fields={"offset": str(offset)})

    call.work_out(first_stored_since(call.core.frames, partition, store_ms + upper), answered)
