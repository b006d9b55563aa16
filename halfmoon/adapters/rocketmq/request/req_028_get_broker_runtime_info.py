"""GET_BROKER_RUNTIME_INFO (28): how the broker is. RocketMQ says a hundred things; these are what there is."""

from __future__ import annotations

import msgspec

from halfmoon import __version__
from halfmoon.adapters.rocketmq.answers import Answer
from halfmoon.adapters.rocketmq.registry import Call, request
from halfmoon.remoting.command import VERSION


@request(28, "GET_BROKER_RUNTIME_INFO")
def handle(call: Call) -> Answer:
    log = call.core.log
    table = {
        "brokerActive": "true",
        "brokerVersion": str(VERSION),
        "brokerVersionDesc": f"Halfmoon {__version__}",
        "commitLogMinOffset": str(log.start),
        "commitLogMaxOffset": str(log.end),
        "getMessageEntireTotal": str(call.node.messages_out),
        "runtime": str(call.core.clock.mono_ms()),
    }
    return Answer(body=msgspec.json.encode({"table": table}))
