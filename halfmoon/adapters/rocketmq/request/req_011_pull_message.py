"""PULL_MESSAGE (11): messages of one queue, or a wait for some.

What a group wants of a topic stands in its heartbeats, unless the request says that it brings it (bit 4 of the flags).
"""

from __future__ import annotations

from halfmoon.adapters.rocketmq import names
from halfmoon.adapters.rocketmq.answers import Answer
from halfmoon.adapters.rocketmq.errors import Refused
from halfmoon.adapters.rocketmq.filters import Filter
from halfmoon.adapters.rocketmq.members import BROADCASTING
from halfmoon.adapters.rocketmq.pulling import Pull
from halfmoon.adapters.rocketmq.registry import Call, request
from halfmoon.remoting.codes import Code

COMMIT, SUSPEND, SUBSCRIPTION, CLASS_FILTER = 1, 2, 4, 8
"""Flags (PullSysFlag)."""


@request(11, "PULL_MESSAGE")
def handle(call: Call) -> Answer | None:
    node = call.node
    group, topic = call.group("consumerGroup"), call.text("topic")
    flags = call.number("sysFlag")
    partition = node.queue(topic, call.number("queueId"))
    wanted = _filter(call, group, topic, flags)
    offset = call.number("queueOffset")
    committed = call.number("commitOffset", 0)
    if flags & COMMIT and committed > 0 and not node.was_reset(group, partition):
        known = node.members.consumer_group(group)
        if known is None or known.model != BROADCASTING:
            node.progress.note(group, partition, committed)
    suspend_ms = call.number("suspendTimeoutMillis", 0) if flags & SUSPEND else 0
    return Pull(call, group, partition, offset, call.number("maxMsgNums"), wanted, suspend_ms).run()


def _filter(call: Call, group: str, topic: str, flags: int) -> Filter | None:
    """What the group wants of the topic. Raises Refused."""
    node = call.node
    if flags & CLASS_FILTER:
        raise Refused(Code.SYSTEM_ERROR, "filter servers are not offered; RocketMQ 5 has none either")
    if topic.startswith((names.RETRY_PREFIX, names.DEAD_LETTER_PREFIX)):
        return None  # what was handed back has passed the filter before
    if flags & SUBSCRIPTION:
        return node.filters.get(call.text("expressionType", "TAG"), call.text("subscription", "*"))
    known = node.members.consumer_group(group)
    if known is None:
        raise Refused(Code.SUBSCRIPTION_NOT_EXIST, f"the consumer's group info not exist: {group}")
    subscription = known.subscriptions.get(topic)
    if subscription is None:
        raise Refused(Code.SUBSCRIPTION_NOT_EXIST, f"the consumer's subscription not exist: {group} {topic}")
    if subscription.version < call.number("subVersion", 0):
        raise Refused(Code.SUBSCRIPTION_NOT_LATEST, "the consumer's subscription not latest")
    return node.filters.get(subscription.kind, subscription.expression)
