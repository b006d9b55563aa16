"""GET_TOPIC_STATS_INFO (202): where the queues of a topic begin and end."""

from __future__ import annotations

from halfmoon.adapters.rocketmq import fastjson
from halfmoon.adapters.rocketmq.answers import Answer
from halfmoon.adapters.rocketmq.registry import Call, request
from halfmoon.core.catalog.topics import Partition


@request(202, "GET_TOPIC_STATS_INFO")
def handle(call: Call) -> Answer:
    name = call.text("topic")
    rows = [
        (
            fastjson.message_queue(call.node.settings.broker_name, name, queue_id),
            {
                "lastUpdateTimestamp": last_ms(partition, partition.stable_offset),
                "maxOffset": partition.stable_offset,
                "minOffset": partition.start_offset,
            },
        )
        for queue_id, partition in enumerate(call.node.queues.of(call.node.topic(name)))
    ]
    return Answer(body=fastjson.body({"offsetTable": fastjson.by_queue(rows), "topicPutTps": b"0.0"}))


def last_ms(partition: Partition, next_offset: int) -> int:
    """The time of the last message before an offset (Unix ms); 0 where there is none."""
    if not partition.start_offset < next_offset <= partition.stable_offset:
        return 0
    try:
        return partition.queue.time_of(next_offset - 1)
    except LookupError:
        return 0
