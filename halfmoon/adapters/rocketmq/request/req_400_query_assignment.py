"""QUERY_ASSIGNMENT (400): which queues are a client's, where the broker shares them out (B23).

The strategies are the allocation plugins', under their names or RocketMQ's.
"""

from __future__ import annotations

import msgspec
from msgspec import Struct

from halfmoon.adapters.rocketmq import fastjson, routes
from halfmoon.adapters.rocketmq.answers import Answer
from halfmoon.adapters.rocketmq.errors import Refused
from halfmoon.adapters.rocketmq.members import BROADCASTING
from halfmoon.adapters.rocketmq.registry import Call, request
from halfmoon.adapters.rocketmq.request.req_034_heart_beat import MessageModel
from halfmoon.remoting.codes import Code
from halfmoon.services.groups.allocation import Queue, allocate, sorted_members, sorted_queues

NAMES = {"AVG": "averagely", "AVG_BY_CIRCLE": "averagely_by_circle", "CONSISTENT_HASH": "consistent_hash"}


class AssignmentRequest(Struct):
    topic: str = ""
    consumerGroup: str = ""  # noqa: N815 (the wire's names, here and below)
    clientId: str = ""  # noqa: N815
    strategyName: str | None = None  # noqa: N815
    messageModel: MessageModel = "CLUSTERING"  # noqa: N815


@request(400, "QUERY_ASSIGNMENT")
def handle(call: Call) -> Answer:
    asked = call.body(AssignmentRequest)
    node = call.node
    queues = [
        Queue(asked.topic, broker_name, index)
        for broker_name, count in routes.queue_counts(node, node.topic(asked.topic))
        for index in range(count)
    ]
    if asked.messageModel != BROADCASTING:
        group = node.members.consumer_group(asked.consumerGroup)
        members = [] if group is None else sorted_members(group.client_ids())
        if group is None or asked.clientId not in members:
            raise Refused(Code.SYSTEM_ERROR, f"{asked.clientId} is no member of group {asked.consumerGroup}")
        name = NAMES.get(asked.strategyName or "", asked.strategyName) or call.core.settings.groups.default_assignor
        allocator = node.allocators.get(name)
        if allocator is None:
            raise Refused(Code.INVALID_PARAMETER, f"no plugin that is on allocates by '{name[:100]}'")
        # Where there are several brokers a client asks any of them, so what one has answered before does not count.
        previous = group.assignments.get((asked.topic, name)) if node.shards is None else None
        assignment = allocate(allocator, members, sorted_queues(queues), previous)
        group.assignments[asked.topic, name] = assignment
        queues = assignment[asked.clientId]
    assigned = [
        {"messageQueue": fastjson.message_queue(each.broker, each.topic, each.queue_id), "mode": "PULL"}
        for each in queues
    ]
    return Answer(body=msgspec.json.encode({"messageQueueAssignments": assigned}))
