"""GET_ALL_TOPIC_LIST_FROM_NAMESERVER (206): all topics but internal ones."""

from __future__ import annotations

import msgspec

from halfmoon.adapters.rocketmq import names
from halfmoon.adapters.rocketmq.answers import Answer
from halfmoon.adapters.rocketmq.registry import Call, Port, request


@request(206, "GET_ALL_TOPIC_LIST_FROM_NAMESERVER", port=Port.NAMES | Port.BROKER)
def handle(call: Call) -> Answer:
    topics = [
        names.to_rocketmq(topic.name)
        for topic in call.core.catalog.topics()
        if not topic.internal and call.allows("describe", "topic", topic.name)
    ]
    return Answer(body=msgspec.json.encode({"topicList": topics}))
