"""GET_ROUTEINFO_BY_TOPIC (105): where the queues of a topic are. Also of TBW102, from which producers learn how a topic
is made by sending to it."""

from __future__ import annotations

import msgspec

from halfmoon.adapters.rocketmq import names, routes
from halfmoon.adapters.rocketmq.answers import Answer
from halfmoon.adapters.rocketmq.errors import Refused
from halfmoon.adapters.rocketmq.registry import Call, Port, request
from halfmoon.remoting.codes import Code


@request(105, "GET_ROUTEINFO_BY_TOPIC", port=Port.NAMES | Port.BROKER)
def handle(call: Call) -> Answer:
    node, name = call.node, call.text("topic")
    topic = node.find_topic(name)
    if topic is not None:
        route = routes.topic_route(node, call.connection, topic)
    elif name == names.AUTO_CREATE_TOPIC and node.core.settings.topics.auto_create:
        route = routes.auto_create_route(node, call.connection)
    else:
        route = {}
    if not route.get("brokerDatas"):
        raise Refused(Code.TOPIC_NOT_EXIST, f"No topic route info in name server for the topic: {name}")
    return Answer(body=msgspec.json.encode(route))
