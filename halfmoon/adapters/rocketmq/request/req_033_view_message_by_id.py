"""VIEW_MESSAGE_BY_ID (33): the message that the number in an offset message id leads to."""

from __future__ import annotations

from halfmoon.adapters.rocketmq import lookup
from halfmoon.adapters.rocketmq.answers import Answer
from halfmoon.adapters.rocketmq.lookup import Standing
from halfmoon.adapters.rocketmq.registry import Call, request


@request(33, "VIEW_MESSAGE_BY_ID")
def handle(call: Call) -> None:
    def answered(standing: Standing) -> Answer:
        return Answer(body=lookup.written(call.node.writer_for(call.connection), standing))

    call.work_out(lookup.find(call, call.number("offset")), answered)
