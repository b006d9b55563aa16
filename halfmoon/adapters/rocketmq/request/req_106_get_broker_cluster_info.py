"""GET_BROKER_CLUSTER_INFO (106): which brokers there are."""

from __future__ import annotations

import msgspec

from halfmoon.adapters.rocketmq import routes
from halfmoon.adapters.rocketmq.answers import Answer
from halfmoon.adapters.rocketmq.registry import Call, Port, request


@request(106, "GET_BROKER_CLUSTER_INFO", port=Port.NAMES | Port.BROKER)
def handle(call: Call) -> Answer:
    brokers = routes.all_brokers(call.node, call.connection)
    info = {
        "brokerAddrTable": brokers,
        "clusterAddrTable": {call.node.settings.cluster: list(brokers)},
    }
    return Answer(body=msgspec.json.encode(info))
