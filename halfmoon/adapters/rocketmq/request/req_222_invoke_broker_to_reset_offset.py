"""INVOKE_BROKER_TO_RESET_OFFSET (222): set a group back (or forward) to a time, in all queues of a topic or in one.

Consumers that are online learn of it by their next pull, which is answered with the new offset; until then what they
report does not count (ConsumerOffsetManager.resetOffset, useServerSideResetOffset).
"""

from __future__ import annotations

from collections.abc import Sequence

from halfmoon.adapters.rocketmq import fastjson
from halfmoon.adapters.rocketmq.answers import Answer
from halfmoon.adapters.rocketmq.errors import Refused
from halfmoon.adapters.rocketmq.registry import Call, request
from halfmoon.adapters.rocketmq.store_times import first_stored_since
from halfmoon.core.catalog.topics import Partition
from halfmoon.core.steps import Steps
from halfmoon.remoting.codes import Code
from halfmoon.services.groups.service import GroupService


@request(222, "INVOKE_BROKER_TO_RESET_OFFSET", changes=True)
def handle(call: Call) -> None:
    name, group = call.text("topic"), call.group("group")
    topic = call.node.topic(name)
    if call.services.get(GroupService).coordinator.is_active(group):
        raise Refused(Code.SYSTEM_ERROR, f"members of group '{group}' speak Kafka's protocol, which cannot tell them")
    queue_id, offset = call.number("queueId", -1), call.number("offset", -1)
    store_ms = call.number("timestamp", -1)
    node = call.node
    partitions = node.queues.of(topic) if queue_id < 0 else [node.queue(name, queue_id)]

    def found(offsets: list[int]) -> None:
        entries = list(zip(partitions, offsets, strict=True))
        rows = [
            (fastjson.message_queue(node.settings.broker_name, name, node.queues.id_of(partition)), to)
            for partition, to in entries
        ]
        answer = Answer(body=fastjson.body({"offsetTable": fastjson.by_queue(rows)}))
        if entries:
            call.wait_for(lambda told: node.reset(group, entries, told), answer)
        else:
            call.reply(answer)

    call.work_out(_offsets(call, partitions, offset if queue_id >= 0 else -1, store_ms), found)


def _offsets(call: Call, partitions: Sequence[Partition], offset: int, store_ms: int) -> Steps[list[int]]:
    found = []
    for partition in partitions:
        if offset >= 0:
            found.append(min(max(offset, partition.start_offset), partition.stable_offset))
        elif store_ms < 0:
            found.append(partition.stable_offset)
        else:
            found.append((yield from first_stored_since(call.core.frames, partition, store_ms)))
    return found
