"""QUERY_CONSUMER_OFFSET (14): where a group goes on in a queue (B17).

A group that has never said where begins at 0 if the queue does and its first message is likely to be in memory still;
else it is for the group's consumers to choose (org.apache.rocketmq.broker.processor.ConsumerManageProcessor).
"""

from __future__ import annotations

from halfmoon.adapters.rocketmq.answers import Answer
from halfmoon.adapters.rocketmq.registry import Call, request
from halfmoon.core.catalog.topics import Partition
from halfmoon.remoting.codes import Code


@request(14, "QUERY_CONSUMER_OFFSET")
def handle(call: Call) -> Answer:
    partition = call.node.queue(call.text("topic"), call.number("queueId"))
    offset = call.node.progress.offset(call.group("consumerGroup"), partition)
    if offset is None and call.flag("setZeroIfNotFound", default=True) and _begins_in_memory(call, partition):
        offset = 0
    if offset is None:
        return Answer(Code.QUERY_NOT_FOUND, remark="Not found, maybe this group consumer boot first")
    return Answer(fields={"offset": str(offset)})


def _begins_in_memory(call: Call, partition: Partition) -> bool:
    if partition.start_offset > 0 or partition.stable_offset == 0:
        return False
    places = partition.queue.places(0, 1, min_one=True)
    if not places:
        return False
    log = call.core.log
    return log.end - places[0][0] < call.node.settings.memory_ratio * log.fs.memory_bytes()
