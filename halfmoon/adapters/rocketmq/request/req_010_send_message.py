"""SEND_MESSAGE (10): one message, under its fields' long names. Few clients use it (sendSmartMsg)."""

from __future__ import annotations

from halfmoon.adapters.rocketmq.answers import Answer
from halfmoon.adapters.rocketmq.registry import Call, request
from halfmoon.adapters.rocketmq.sending import Sent, send


@request(10, "SEND_MESSAGE")
def handle(call: Call) -> Answer | None:
    sent = Sent(
        group=call.group("producerGroup"),
        topic=call.text("topic"),
        queue_id=call.number("queueId"),
        system_flags=call.number("sysFlag"),
        born_ms=call.number("bornTimestamp"),
        flag=call.number("flag"),
        properties=call.text("properties", ""),
        reconsume_times=call.number("reconsumeTimes", 0),
        max_reconsume_times=call.number("maxReconsumeTimes", -1),
        default_topic=call.text("defaultTopic", ""),
        default_queues=call.number("defaultTopicQueueNums", 4),
    )
    return send(call, sent, batch=call.flag("batch"))
