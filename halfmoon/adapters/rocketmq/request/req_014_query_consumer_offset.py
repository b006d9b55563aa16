"""QUERY_CONSUMER_OFFSET (14): where a group goes on in a queue (B17).

A group that has never said where begins at 0 if the queue does and its first message is likely to be in memory still;
else it is for the group's consumers to choose (org.apache.rocketmq.broker.processor.ConsumerManageProcessor).
"""

from __future__ import annotations

from collections.abc import Sequence

from halfmoon.adapters.rocketmq.answers import Answer, refusal
from halfmoon.adapters.rocketmq.registry import Call, request
from halfmoon.core.catalog.topics import Partition
from halfmoon.errors import BrokerError
from halfmoon.remoting.codes import Code


@request(14, "QUERY_CONSUMER_OFFSET")
def handle(call: Call) -> None:
    partition = call.node.queue(call.text("topic"), call.number("queueId"))
    group, may_be_zero = call.group("consumerGroup"), call.flag("setZeroIfNotFound", default=True)

    def answer(found: Sequence[int | None] | BrokerError) -> Answer:
        if isinstance(found, BrokerError):
            return refusal(found)
        (offset,) = found
        if offset is None and may_be_zero and _begins_in_memory(call, partition):
            offset = 0
        if offset is None:
            return Answer(Code.QUERY_NOT_FOUND, remark="Not found, maybe this group consumer boot first")
        return Answer(fields={"offset": str(offset)})

    call.hold_on()
    call.node.progress.find(group, [partition], lambda found: call.answer(lambda: answer(found)))


def _begins_in_memory(call: Call, partition: Partition) -> bool:
    if partition.start_offset > 0 or partition.stable_offset == 0:
        return False
    places = partition.queue.places(0, 1, min_one=True)
    if not places:
        return False
    log = call.core.log
    return log.end - places[0][0] < call.node.settings.memory_ratio * log.fs.memory_bytes()
