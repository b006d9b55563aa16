"""LITE_PULL_MESSAGE (361): as PULL_MESSAGE, of consumers that poll (DefaultLitePullConsumer)."""

from __future__ import annotations

from halfmoon.adapters.rocketmq.answers import Answer
from halfmoon.adapters.rocketmq.registry import Call, request
from halfmoon.adapters.rocketmq.request.req_011_pull_message import handle as pull


@request(361, "LITE_PULL_MESSAGE")
def handle(call: Call) -> Answer | None:
    return pull(call)
