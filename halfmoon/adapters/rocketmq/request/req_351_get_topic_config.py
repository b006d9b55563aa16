"""GET_TOPIC_CONFIG (351): a topic's queues, permissions and attributes."""

from __future__ import annotations

import msgspec

from halfmoon.adapters.rocketmq import attributes
from halfmoon.adapters.rocketmq.answers import Answer
from halfmoon.adapters.rocketmq.registry import Call, request
from halfmoon.adapters.rocketmq.routes import permissions
from halfmoon.adapters.rocketmq.stored_values import is_order_topic


@request(351, "GET_TOPIC_CONFIG")
def handle(call: Call) -> Answer:
    name = call.text("topic")
    topic = call.node.topic(name)
    queues = len(call.node.queues.of(topic))
    config = {
        "attributes": attributes.shown(topic.configs),
        "order": attributes.is_ordered(topic.configs) or is_order_topic(call, name),
        "perm": permissions(topic),
        "readQueueNums": queues,
        "topicFilterType": "SINGLE_TAG",
        "topicName": name,
        "topicSysFlag": 0,
        "writeQueueNums": queues,
    }
    return Answer(body=msgspec.json.encode(config))
