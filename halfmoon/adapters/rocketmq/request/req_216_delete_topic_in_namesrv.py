"""DELETE_TOPIC_IN_NAMESRV (216): forget where a topic is. The name service here knows no more than the core, which
is asked to delete it first."""

from __future__ import annotations

from halfmoon.adapters.rocketmq.answers import DONE
from halfmoon.adapters.rocketmq.errors import Refused
from halfmoon.adapters.rocketmq.registry import Call, Port, request
from halfmoon.remoting.codes import Code


@request(216, "DELETE_TOPIC_IN_NAMESRV", port=Port.NAMES | Port.BROKER, changes=True)
def handle(call: Call) -> None:
    name = call.text("topic")
    if call.node.find_topic(name) is not None:
        raise Refused(Code.SYSTEM_ERROR, f"topic '{name}' is still in the broker; delete it there")
    call.when_known(DONE)
