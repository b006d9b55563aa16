"""GET_BROKER_CLUSTER_INFO (106): which brokers there are."""

from __future__ import annotations

import msgspec

from halfmoon.adapters.rocketmq import routes
from halfmoon.adapters.rocketmq.answers import Answer
from halfmoon.adapters.rocketmq.registry import Call, Port, request


@request(106, "GET_BROKER_CLUSTER_INFO", port=Port.NAMES | Port.BROKER)
def handle(call: Call) -> Answer:
    settings = call.node.settings
    info = {
        "brokerAddrTable": {settings.broker_name: routes.broker_data(call.node, call.connection)},
        "clusterAddrTable": {settings.cluster: [settings.broker_name]},
    }
    return Answer(body=msgspec.json.encode(info))
