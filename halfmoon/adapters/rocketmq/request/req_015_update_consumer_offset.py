"""UPDATE_CONSUMER_OFFSET (15): up to where a group has consumed a queue."""

from __future__ import annotations

from halfmoon.adapters.rocketmq.answers import Answer
from halfmoon.adapters.rocketmq.errors import Refused
from halfmoon.adapters.rocketmq.registry import Call, request
from halfmoon.remoting.codes import Code
from halfmoon.services.groups.service import GroupService


@request(15, "UPDATE_CONSUMER_OFFSET")
def handle(call: Call) -> Answer | None:
    group = call.group("consumerGroup")
    offset = call.number("commitOffset")
    if offset < 0:
        raise Refused(Code.INVALID_PARAMETER, f"an offset of {offset}")
    partition = call.node.queue(call.text("topic"), call.number("queueId"))
    if call.services.get(GroupService).coordinator.is_active(group):
        raise Refused(Code.SYSTEM_ERROR, f"members of group '{group}' speak Kafka's protocol")
    if call.node.was_reset(group, partition):
        return Answer(remark="Offset has been previously reset")
    call.node.progress.note(group, partition, offset)
    if not call.command.is_oneway:
        call.wait_for(lambda told: call.node.progress.commit(group, told))
    return None
