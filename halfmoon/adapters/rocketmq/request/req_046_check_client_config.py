"""CHECK_CLIENT_CONFIG (46): is this subscription one? Asked at a consumer's start about everything but tags (B34)."""

from __future__ import annotations

from msgspec import Struct, field

from halfmoon.adapters.rocketmq.answers import DONE, Answer
from halfmoon.adapters.rocketmq.registry import Call, request
from halfmoon.adapters.rocketmq.request.req_034_heart_beat import SubscriptionData


class CheckRequest(Struct):
    subscriptionData: SubscriptionData = field(default_factory=SubscriptionData)  # noqa: N815 (the wire's names)
    clientId: str = ""  # noqa: N815
    group: str = ""


@request(46, "CHECK_CLIENT_CONFIG")
def handle(call: Call) -> Answer:
    asked = call.body(CheckRequest)
    data = asked.subscriptionData
    call.node.filters.get(data.expressionType or "TAG", data.subString or "*")  # raises what is wrong with it
    return DONE
