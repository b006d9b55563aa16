"""UPDATE_AND_CREATE_TOPIC (17): a topic with so many queues, or more queues for one that is there."""

from __future__ import annotations

from halfmoon.adapters.rocketmq import names
from halfmoon.adapters.rocketmq.answers import DONE
from halfmoon.adapters.rocketmq.errors import Refused
from halfmoon.adapters.rocketmq.registry import Call, request
from halfmoon.adapters.rocketmq.routes import INHERIT, READ, WRITE
from halfmoon.remoting.codes import Code


@request(17, "UPDATE_AND_CREATE_TOPIC", changes=True)
def handle(call: Call) -> None:
    name = names.from_rocketmq(call.text("topic"))
    queues = max(call.number("readQueueNums", 4), call.number("writeQueueNums", 4))
    perm = call.number("perm", READ | WRITE)
    if perm & (READ | WRITE) != READ | WRITE or perm & ~(READ | WRITE | INHERIT):
        raise Refused(Code.INVALID_PARAMETER, f"permissions {perm}: a topic here is for reading and writing (6)")
    core = call.core
    topic = core.catalog.topic(name)
    if topic is None:
        core.administration.create_topic(name, queues)
    elif topic.internal:
        raise Refused(Code.NO_PERMISSION, f"topic '{name}' is internal")
    elif queues > len(topic.partitions):
        core.administration.add_partitions(topic, queues)
    elif queues < len(topic.partitions):
        raise Refused(
            Code.INVALID_PARAMETER, f"topic '{name}' has {len(topic.partitions)} queues; none of them is taken away"
        )
    call.when_known(DONE)
