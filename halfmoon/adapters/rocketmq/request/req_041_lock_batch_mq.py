"""LOCK_BATCH_MQ (41): queues that a client wants to itself, to consume them in order (B21). The answer names those it
has now."""

from __future__ import annotations

import msgspec
from msgspec import Struct

from halfmoon.adapters.rocketmq.answers import Answer
from halfmoon.adapters.rocketmq.connection import LONGEST_CLIENT_ID
from halfmoon.adapters.rocketmq.errors import Refused
from halfmoon.adapters.rocketmq.registry import Call, checked_group, request
from halfmoon.remoting.codes import Code

MOST_QUEUES = 10_000


class MessageQueue(Struct, frozen=True):
    topic: str = ""
    brokerName: str = ""  # noqa: N815 (the wire's names, here and below)
    queueId: int = 0  # noqa: N815


class LockRequest(Struct):
    consumerGroup: str = ""  # noqa: N815
    clientId: str = ""  # noqa: N815
    mqSet: list[MessageQueue] = []  # noqa: N815


def read(call: Call) -> LockRequest:
    """Raises Refused(INVALID_PARAMETER)."""
    wanted = call.body(LockRequest)
    checked_group(wanted.consumerGroup)
    if len(wanted.clientId) > LONGEST_CLIENT_ID:
        raise Refused(Code.INVALID_PARAMETER, f"a client's id has at most {LONGEST_CLIENT_ID} characters")
    if len(wanted.mqSet) > MOST_QUEUES:
        raise Refused(Code.INVALID_PARAMETER, f"{MOST_QUEUES} queues are locked at once at most")
    return wanted


def _there(call: Call, queues: list[MessageQueue]) -> list[MessageQueue]:
    """Those that exist, here: by other brokers' names one queue would take many locks. Each topic is looked up once:
    10,000 queues of a few topics are asked for."""
    counts: dict[str, int] = {}
    for name in {queue.topic for queue in queues}:
        topic = call.node.find_topic(name)
        counts[name] = 0 if topic is None else len(call.node.queues.of(topic))
    here = call.node.settings.broker_name
    return [queue for queue in queues if queue.brokerName == here and 0 <= queue.queueId < counts[queue.topic]]


@request(41, "LOCK_BATCH_MQ")
def handle(call: Call) -> Answer:
    wanted = read(call)
    mono_ms = call.core.clock.mono_ms()
    there = _there(call, wanted.mqSet)
    held = call.node.locks.lock(wanted.consumerGroup, wanted.clientId, there, mono_ms)
    call.node.locks_changed(wanted.consumerGroup)
    return Answer(body=msgspec.json.encode({"lockOKMQSet": held}))
