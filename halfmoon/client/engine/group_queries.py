"""What a consumer asks about its group and its queues (B17, B22)."""

from __future__ import annotations

from enum import Enum

import msgspec

from halfmoon.client.engine.instance import Instance
from halfmoon.client.engine.offsets import OffsetStore, offset_in
from halfmoon.client.errors import BrokerRefusedError, RouteError
from halfmoon.plugin import Queue
from halfmoon.remoting.codes import Code, RequestCode

TIMEOUT_MS = 3_000
UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""What decoding JSON of any bytes may raise."""
RETRY_PREFIX = "%RETRY%"


class ConsumeFrom(Enum):
    """Where a group begins that has no progress yet. The names are RocketMQ's."""

    LAST = "CONSUME_FROM_LAST_OFFSET"
    FIRST = "CONSUME_FROM_FIRST_OFFSET"
    TIMESTAMP = "CONSUME_FROM_TIMESTAMP"


class _Members(msgspec.Struct):
    consumerIdList: list[str] = []  # noqa: N815 (the wire's name)


async def members_of(instance: Instance, group: str, broker: str) -> list[str]:
    """The client ids of a group, as a broker knows them, sorted. Raises ClientError."""
    found = instance.routes.readable(broker)
    if found is None:
        raise RouteError(f"no route names broker {broker}")
    answer = await instance.network.request(
        found[0], RequestCode.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": group}, timeout_ms=TIMEOUT_MS
    )
    if answer.code != Code.SUCCESS:
        raise BrokerRefusedError(answer.code, answer.remark, broker)
    try:
        return sorted(msgspec.json.decode(answer.body, type=_Members).consumerIdList)
    except UNREADABLE as error:
        raise BrokerRefusedError(answer.code, f"an unreadable list of members: {error}", broker) from None


class _QueueName(msgspec.Struct):
    topic: str
    brokerName: str  # noqa: N815 (the wire's names, here and below)
    queueId: int  # noqa: N815


class _Assigned(msgspec.Struct):
    messageQueue: _QueueName  # noqa: N815


class _Assignments(msgspec.Struct):
    messageQueueAssignments: list[_Assigned] = []  # noqa: N815


async def assigned_by(instance: Instance, group: str, topic: str, broker: str, strategy: str) -> list[Queue]:
    """A broker's queues that are ours, as the broker shares them out (B23). Raises ClientError, which is
    BrokerRefusedError where it does not know the strategy."""
    address = instance.routes.master(broker)
    if address is None:
        raise RouteError(f"broker {broker} has no master")
    asked = {
        "topic": topic, "consumerGroup": group, "clientId": instance.client_id, "strategyName": strategy,
        "messageModel": "CLUSTERING",
    }  # fmt: skip
    answer = await instance.network.request(
        address, RequestCode.QUERY_ASSIGNMENT, {}, msgspec.json.encode(asked), timeout_ms=TIMEOUT_MS
    )
    if answer.code != Code.SUCCESS:
        raise BrokerRefusedError(answer.code, answer.remark, broker)
    try:
        found = msgspec.json.decode(answer.body, type=_Assignments).messageQueueAssignments
    except UNREADABLE as error:
        raise BrokerRefusedError(answer.code, f"an unreadable assignment: {error}", broker) from None
    return [Queue(each.messageQueue.topic, broker, each.messageQueue.queueId) for each in found]


async def offset_of(instance: Instance, code: int, queue: Queue, **fields: str) -> int:
    """What GET_MAX_OFFSET, GET_MIN_OFFSET or SEARCH_OFFSET_BY_TIMESTAMP says of a queue. Raises ClientError."""
    address = instance.routes.master(queue.broker)
    if address is None:
        raise RouteError(f"broker {queue.broker} has no master")
    said = {"topic": queue.topic, "queueId": str(queue.queue_id), "bname": queue.broker, **fields}
    answer = await instance.network.request(address, code, said, timeout_ms=TIMEOUT_MS)
    return offset_in(answer, queue.broker)


async def max_offset(instance: Instance, queue: Queue) -> int:
    """The one behind the last message."""
    return await offset_of(instance, RequestCode.GET_MAX_OFFSET, queue)


async def min_offset(instance: Instance, queue: Queue) -> int:
    return await offset_of(instance, RequestCode.GET_MIN_OFFSET, queue)


async def offset_for_time(instance: Instance, queue: Queue, time_ms: int) -> int:
    """Of the first message that was stored at that time (Unix ms) or later, else the one behind the last."""
    return await offset_of(instance, RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, queue, timestamp=str(time_ms))


async def first_offset(
    instance: Instance, store: OffsetStore, queue: Queue, consume_from: ConsumeFrom, from_time_ms: int
) -> int:
    """Where to begin to pull a queue that is ours from now on (B17: RebalancePushImpl.computePullFromWhere). Raises
    ClientError."""
    known = await store.read(queue)
    if known >= 0:
        return known
    # What was handed back was consumed by the group before, so it counts from the first one on. (RocketMQ's client
    # begins behind the last one with TIMESTAMP.)
    if consume_from is ConsumeFrom.FIRST or queue.topic.startswith(RETRY_PREFIX):
        return 0
    if consume_from is ConsumeFrom.LAST:
        return await max_offset(instance, queue)
    return await offset_for_time(instance, queue, from_time_ms)
