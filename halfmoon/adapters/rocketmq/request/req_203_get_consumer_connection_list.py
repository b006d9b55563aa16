"""GET_CONSUMER_CONNECTION_LIST (203): who consumes for a group, and what it subscribes to."""

from __future__ import annotations

import msgspec

from halfmoon.adapters.rocketmq.answers import Answer
from halfmoon.adapters.rocketmq.errors import Refused
from halfmoon.adapters.rocketmq.members import Subscription
from halfmoon.adapters.rocketmq.registry import Call, request
from halfmoon.remoting.codes import Code


@request(203, "GET_CONSUMER_CONNECTION_LIST")
def handle(call: Call) -> Answer:
    name = call.group("consumerGroup")
    group = call.node.members.consumer_group(name)
    if group is None:
        raise Refused(Code.CONSUMER_NOT_ONLINE, f"the consumer group[{name}] not online")
    body = {
        "connectionSet": [
            {
                "clientAddr": member.connection.peer,
                "clientId": member.client_id,
                "language": member.language,
                "version": member.version,
            }
            for member in group.members.values()
        ],
        "consumeFromWhere": group.from_where,
        "consumeType": group.consume_type,
        "messageModel": group.model,
        "subscriptionTable": {topic: _shown(each) for topic, each in group.subscriptions.items()},
    }
    return Answer(body=msgspec.json.encode(body))


def _shown(subscription: Subscription) -> dict[str, object]:
    return {
        "classFilterMode": False,
        "codeSet": subscription.codes,
        "expressionType": subscription.kind,
        "subString": subscription.expression,
        "subVersion": subscription.version,
        "tagsSet": subscription.tags,
        "topic": subscription.topic,
    }
