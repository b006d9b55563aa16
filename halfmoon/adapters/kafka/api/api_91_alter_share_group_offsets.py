"""AlterShareGroupOffsets (91): set where a share group without members goes on (KIP-932).

What the group has done in these partitions before counts no more: all from the offset on is given out, and nothing
before it. A group that is not there is made. Rules: GroupCoordinatorService.alterShareGroupOffsets.
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any, NamedTuple

from halfmoon.adapters.kafka.durable import refuse, tells_state
from halfmoon.adapters.kafka.errors import NONE, code_of
from halfmoon.adapters.kafka.lookup import partition_of
from halfmoon.adapters.kafka.protocol import AlterShareGroupOffsetsResponse, Slices
from halfmoon.adapters.kafka.registry import Context
from halfmoon.errors import BrokerError, Fault
from halfmoon.services.share.service import ShareService, within

if TYPE_CHECKING:
    from halfmoon.core.catalog.topics import Partition, Topic

_Topic = AlterShareGroupOffsetsResponse.AlterShareGroupOffsetsResponseTopic
_Part = _Topic.AlterShareGroupOffsetsResponsePartition


class Start(NamedTuple):
    """Where a group is to go on in a partition, and the result that says what became of it."""

    topic: Topic
    part: Any
    partition: Partition
    offset: int


def response() -> Any:
    return AlterShareGroupOffsetsResponse(throttle_time_ms=0, error_code=NONE, error_message=None, responses=[])


def fail(answer: Any, error: Exception) -> object:
    for part in (part for topic in answer.responses for part in topic.partitions if part.error_code == NONE):
        refuse(part, error)
    return answer


@tells_state(fail)
def handle(ctx: Context, request: Any) -> Slices[object]:
    shares = ctx.services.get(ShareService)
    answer = response()
    try:
        shares.check_name(request.group_id)
        shares.check_empty(request.group_id)
    except BrokerError as error:
        refuse(answer, error)
        return answer
    starts = yield from checked(ctx, request, answer)
    if starts:
        try:
            shares.reset(request.group_id, [(each.partition, within(each.partition, each.offset)) for each in starts])
        except BrokerError as error:
            for each in starts:
                refuse(each.part, error)
    return answer


def checked(ctx: Context, request: Any, answer: Any) -> Slices[list[Start]]:
    """Put a result into the answer for each partition that is asked for; those that may be changed."""
    starts = []
    for asked in request.topics:
        topic = ctx.core.catalog.topic(asked.topic_name)
        parts = []
        for each in asked.partitions:
            yield
            part = _Part(partition_index=each.partition_index, error_code=NONE, error_message=None)
            parts.append(part)
            try:
                partition = partition_of(topic, each.partition_index)
                if partition.topic.internal or each.start_offset < 0:
                    raise BrokerError(
                        Fault.UNKNOWN_TOPIC_OR_PARTITION if each.start_offset >= 0 else Fault.INVALID_REQUEST
                    )
                starts.append(Start(partition.topic, part, partition, each.start_offset))
            except BrokerError as error:
                part.error_code, part.error_message = code_of(error), str(error)
        topic_id = None if topic is None else uuid.UUID(bytes=topic.id)
        answer.responses.append(_Topic(topic_name=asked.topic_name, topic_id=topic_id, partitions=parts))
    return starts
