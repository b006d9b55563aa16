"""AUTH_UPDATE_ACL (3007): the same as AUTH_CREATE_ACL, as in RocketMQ."""

from __future__ import annotations

from halfmoon.adapters.rocketmq.registry import Call, request
from halfmoon.adapters.rocketmq.request import req_3006_auth_create_acl as creating


@request(3007, "AUTH_UPDATE_ACL", changes=True)
def handle(call: Call) -> None:
    creating.handle(call)
