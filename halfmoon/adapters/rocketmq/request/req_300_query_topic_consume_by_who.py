"""QUERY_TOPIC_CONSUME_BY_WHO (300): the groups that consume a topic, or have."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from halfmoon.adapters.rocketmq.answers import Answer, refusal
from halfmoon.adapters.rocketmq.progress import with_offsets
from halfmoon.adapters.rocketmq.registry import Call, request
from halfmoon.errors import BrokerError
from halfmoon.services.groups.service import GroupService


@request(300, "QUERY_TOPIC_CONSUME_BY_WHO")
def handle(call: Call) -> Answer | None:
    name = call.text("topic")
    topic = call.node.topic(name)
    call.node.progress.write()
    if call.node.shards is None:
        return _shown(call, name, with_offsets(call.services.get(GroupService), topic.number))
    call.hold_on()

    def answer(groups: Sequence[str] | BrokerError) -> Answer:
        return refusal(groups) if isinstance(groups, BrokerError) else _shown(call, name, groups)

    call.node.shards.coordinators.consuming(topic, lambda groups: call.answer(lambda: answer(groups)))
    return None


def _shown(call: Call, topic: str, found: Iterable[str]) -> Answer:
    groups = {group.name for group in call.node.members.groups_of(topic)} | set(found)
    shown = [group for group in sorted(groups) if call.allows("describe", "group", group)]
    return Answer(body=msgspec.json.encode({"groupList": shown}))
