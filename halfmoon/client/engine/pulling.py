"""Pulling a queue: what is asked, what the answer means (B11, B14, B15).

(org.apache.rocketmq.client.impl.consumer.PullAPIWrapper, …MQClientAPIImpl.processPullResponse.)
"""

from __future__ import annotations

from enum import Enum

from msgspec import Struct

from halfmoon.client.engine.instance import Instance
from halfmoon.client.engine.routes import MASTER
from halfmoon.client.engine.subscriptions import Subscription
from halfmoon.client.errors import BrokerRefusedError, RouteError
from halfmoon.client.messages import ReceivedMessage, read_messages
from halfmoon.plugin import Queue
from halfmoon.remoting.codes import Code, RequestCode

COMMIT, SUSPEND, SUBSCRIPTION, LITE = 1, 2, 4, 16
"""PullSysFlag."""
MOST_BYTES = (1 << 31) - 1


class PullStatus(Enum):
    """(org.apache.rocketmq.client.consumer.PullStatus)"""

    FOUND = "found"
    NO_NEW_MSG = "no new message"
    NO_MATCHED_MSG = "no matching message"
    OFFSET_ILLEGAL = "offset illegal"


STATUS: dict[int, PullStatus] = {
    Code.SUCCESS: PullStatus.FOUND,
    Code.PULL_NOT_FOUND: PullStatus.NO_NEW_MSG,
    Code.PULL_RETRY_IMMEDIATELY: PullStatus.NO_MATCHED_MSG,
    Code.PULL_OFFSET_MOVED: PullStatus.OFFSET_ILLEGAL,
}


class PullResult(Struct, frozen=True):
    """An answer to a pull."""

    status: PullStatus
    next_offset: int
    """To pull from next."""
    min_offset: int
    max_offset: int
    """Behind the last message."""
    messages: list[ReceivedMessage]
    node_id: int = MASTER
    """Whom to ask next."""


class Pull(Struct, frozen=True, kw_only=True):
    """What is asked."""

    queue: Queue
    offset: int
    subscription: Subscription
    most: int = 32
    commit_offset: int = -1
    """Progress that is reported with it; −1: none."""
    hold_ms: int = 0
    """How long the broker may wait for a message."""
    timeout_ms: float = 30_000
    node_id: int = MASTER
    with_subscription: bool = False
    """The expression counts as it stands here, not as the group's heartbeat says it."""
    is_lite: bool = False
    most_bytes: int = MOST_BYTES


async def pull(instance: Instance, group: str, asked: Pull) -> PullResult:
    """Raises ClientError; MalformedFrame where the answer's messages are none."""
    queue = asked.queue
    found = instance.routes.readable(queue.broker, asked.node_id)
    if found is None:
        raise RouteError(f"no route names broker {queue.broker}")
    address, node_id = found
    # A slave keeps no progress.
    commits = asked.commit_offset > 0 and node_id == MASTER
    flags = (COMMIT if commits else 0) | (SUSPEND if asked.hold_ms else 0)
    flags |= (SUBSCRIPTION if asked.with_subscription else 0) | (LITE if asked.is_lite else 0)
    fields = {
        "consumerGroup": group, "topic": queue.topic, "queueId": str(queue.queue_id),
        "queueOffset": str(asked.offset), "maxMsgNums": str(asked.most), "sysFlag": str(flags),
        "commitOffset": str(asked.commit_offset if commits else 0), "suspendTimeoutMillis": str(asked.hold_ms),
        "subscription": asked.subscription.expression, "subVersion": str(asked.subscription.version),
        "expressionType": asked.subscription.kind, "maxMsgBytes": str(asked.most_bytes), "bname": queue.broker,
    }  # fmt: skip
    code = RequestCode.LITE_PULL_MESSAGE if asked.is_lite else RequestCode.PULL_MESSAGE
    answer = await instance.network.request(address, code, fields, timeout_ms=asked.timeout_ms)
    status = STATUS.get(answer.code)
    if status is None:
        raise BrokerRefusedError(answer.code, answer.remark, queue.broker)
    said = answer.fields
    try:
        offsets = int(said["nextBeginOffset"]), int(said["minOffset"]), int(said["maxOffset"])
        suggested = int(said.get("suggestWhichBrokerId", MASTER))
    except (KeyError, ValueError):
        raise BrokerRefusedError(answer.code, f"an invalid answer to a pull: {said}", queue.broker) from None
    messages = read_messages(answer.body, queue) if status is PullStatus.FOUND else []
    return PullResult(status, *offsets, messages, suggested)
