"""QUERY_TOPIC_CONSUME_BY_WHO (300): the groups that consume a topic, or have."""

from __future__ import annotations

import msgspec

from halfmoon.adapters.rocketmq.answers import Answer
from halfmoon.adapters.rocketmq.registry import Call, request
from halfmoon.services.groups.service import GroupService


@request(300, "QUERY_TOPIC_CONSUME_BY_WHO")
def handle(call: Call) -> Answer:
    name = call.text("topic")
    topic = call.node.topic(name)
    call.node.progress.write()
    groups = {group.name for group in call.node.members.groups_of(name)}
    for group, progress in call.services.get(GroupService).all_offsets.items():
        if any(number == topic.number for number, _ in progress):
            groups.add(group)
    shown = [group for group in sorted(groups) if call.allows("describe", "group", group)]
    return Answer(body=msgspec.json.encode({"groupList": shown}))
