"""UNLOCK_BATCH_MQ (42): a client does not need these queues to itself any more."""

from __future__ import annotations

from halfmoon.adapters.rocketmq.answers import DONE, Answer
from halfmoon.adapters.rocketmq.registry import Call, request
from halfmoon.adapters.rocketmq.request.req_041_lock_batch_mq import read


@request(42, "UNLOCK_BATCH_MQ")
def handle(call: Call) -> Answer:
    wanted = read(call)
    call.node.locks.unlock(wanted.consumerGroup, wanted.clientId, wanted.mqSet)
    call.node.locks_changed(wanted.consumerGroup)
    return DONE
