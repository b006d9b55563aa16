"""GET_CONSUME_STATS (208): how far a group is, in one topic or in all that it consumes."""

from __future__ import annotations

from halfmoon.adapters.rocketmq import fastjson, names
from halfmoon.adapters.rocketmq.answers import Answer
from halfmoon.adapters.rocketmq.registry import Call, request
from halfmoon.adapters.rocketmq.request.req_202_get_topic_stats_info import last_ms
from halfmoon.core.catalog.topics import Topic
from halfmoon.services.groups.service import GroupService


@request(208, "GET_CONSUME_STATS")
def handle(call: Call) -> Answer:
    node, group = call.node, call.group("consumerGroup")
    node.progress.write(group)
    rows = []
    for topic in _topics(call, group, call.text("topic", "")):
        for partition in topic.partitions:
            offset = node.progress.offset(group, partition)
            consumed = 0 if offset is None else offset
            queue = fastjson.message_queue(node.settings.broker_name, names.to_rocketmq(topic.name), partition.index)
            offsets = {
                "brokerOffset": partition.stable_offset,
                "consumerOffset": consumed,
                "lastTimestamp": last_ms(partition, consumed),
                "pullOffset": consumed,
            }
            rows.append((queue, offsets))
    return Answer(body=fastjson.body({"consumeTps": b"0.0", "offsetTable": fastjson.by_queue(rows)}))


def _topics(call: Call, group: str, named: str) -> list[Topic]:
    if named:
        call.check("describe", "topic", names.from_rocketmq(named))  # first: whether it exists is not told either
        return [call.node.topic(named)]
    found = {partition.topic.name: partition.topic for partition in call.services.get(GroupService).offsets(group)}
    known = call.node.members.consumer_group(group)
    for name in known.subscriptions if known is not None else ():
        topic = call.node.find_topic(name)
        if topic is not None:
            found[topic.name] = topic
    return [found[name] for name in sorted(found) if call.allows("describe", "topic", name)]
