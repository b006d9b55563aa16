"""SEND_BATCH_MESSAGE (320): messages of one topic, stored as one batch."""

from __future__ import annotations

from halfmoon.adapters.rocketmq.answers import Answer
from halfmoon.adapters.rocketmq.registry import Call, request
from halfmoon.adapters.rocketmq.request.req_310_send_message_v2 import read
from halfmoon.adapters.rocketmq.sending import send


@request(320, "SEND_BATCH_MESSAGE")
def handle(call: Call) -> Answer | None:
    return send(call, read(call), batch=True)
