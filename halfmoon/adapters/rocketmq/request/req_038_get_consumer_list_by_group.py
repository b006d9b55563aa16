"""GET_CONSUMER_LIST_BY_GROUP (38): the client ids of a group's members, which share the queues among themselves."""

from __future__ import annotations

import msgspec

from halfmoon.adapters.rocketmq.answers import Answer
from halfmoon.adapters.rocketmq.errors import Refused
from halfmoon.adapters.rocketmq.registry import Call, request
from halfmoon.remoting.codes import Code


@request(38, "GET_CONSUMER_LIST_BY_GROUP")
def handle(call: Call) -> Answer:
    name = call.group("consumerGroup")
    group = call.node.members.consumer_group(name)
    if group is None:
        raise Refused(Code.SYSTEM_ERROR, f"no consumer for this group, {name}")
    return Answer(body=msgspec.json.encode({"consumerIdList": group.client_ids()}))
