"""SEND_MESSAGE_V2 (310): one message, its fields under one letter each (SendMessageRequestHeaderV2)."""

from __future__ import annotations

from halfmoon.adapters.rocketmq.registry import Answer, Call, request
from halfmoon.adapters.rocketmq.sending import Sent, send


@request(310, "SEND_MESSAGE_V2")
def handle(call: Call) -> Answer | None:
    return send(call, read(call), batch=call.flag("m"))


def read(call: Call) -> Sent:
    return Sent(
        group=call.text("a"),
        topic=call.text("b"),
        queue_id=call.number("e"),
        system_flags=call.number("f"),
        born_ms=call.number("g"),
        flag=call.number("h"),
        properties=call.text("i", ""),
        reconsume_times=call.number("j", 0),
        max_reconsume_times=call.number("l", -1),
        default_topic=call.text("c", ""),
        default_queues=call.number("d", 4),
    )
