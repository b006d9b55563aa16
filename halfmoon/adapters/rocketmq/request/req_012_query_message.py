"""QUERY_MESSAGE (12): messages of a topic by one of their keys, or by the UNIQ_KEY that clients show as message id."""

from __future__ import annotations

from halfmoon.adapters.rocketmq import lookup
from halfmoon.adapters.rocketmq.answers import Answer
from halfmoon.adapters.rocketmq.registry import Call, request
from halfmoon.remoting.codes import Code
from halfmoon.services.keyindex.messages import Messages
from halfmoon.services.keyindex.questions import Results

MOST = 64
"""MessageStoreConfig.maxMsgsNumBatch."""


@request(12, "QUERY_MESSAGE")
def handle(call: Call) -> None:
    topic = call.node.topic(call.text("topic"))
    begin_ms, end_ms = max(0, call.number("beginTimestamp", 0)), max(0, call.number("endTimestamp", (1 << 63) - 1))
    most = max(1, min(call.number("maxNum", MOST), MOST))

    def answered(results: Results) -> Answer:
        writer = call.node.writer_for(call.connection)
        body = [
            lookup.written(writer, lookup.found_again(topic.partitions[found.partition], found))
            for found in results.messages
        ]
        fields = {
            "indexLastUpdateTimestamp": str(call.core.clock.wall_ms()),
            "indexLastUpdatePhyoffset": str(call.core.log.end),
        }
        if not body:
            return Answer(Code.QUERY_NOT_FOUND, fields, "can not find message, maybe time range not correct")
        return Answer(fields=fields, body=body)

    key = call.text("key").encode()
    messages = call.services.get(Messages).find(
        topic, key, from_ms=begin_ms, to_ms=end_ms, most=most, sees=lambda found: found.topic == topic.name
    )
    call.work_out(messages, answered)
