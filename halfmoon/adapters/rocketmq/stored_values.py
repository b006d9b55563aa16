"""Where the name server's values are, for the requests about them."""

from __future__ import annotations

from halfmoon.adapters.rocketmq.errors import Refused
from halfmoon.adapters.rocketmq.registry import Call
from halfmoon.remoting.codes import Code
from halfmoon.services.configs.name_server import ORDER_TOPICS, NameServerConfigs


def stored_values(call: Call) -> NameServerConfigs:
    """Raises Refused(REQUEST_CODE_NOT_SUPPORTED) where the service is off that keeps them."""
    found = call.services.find(NameServerConfigs)
    if found is None:
        raise Refused(Code.REQUEST_CODE_NOT_SUPPORTED, "services.configs is off in broker.yaml")
    return found


def is_order_topic(call: Call, name: str) -> bool:
    """Whether the name server has it among the topics whose queues are in order: brokers of RocketMQ ask it."""
    found = call.services.find(NameServerConfigs)
    return found is not None and name in found.values(ORDER_TOPICS)
