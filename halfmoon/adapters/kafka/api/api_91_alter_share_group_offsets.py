"""AlterShareGroupOffsets (91): set where a share group without members goes on (KIP-932).

What the group has done in these partitions before counts no more: all from the offset on is given out, and nothing
before it. A group that is not there is made. Rules: GroupCoordinatorService.alterShareGroupOffsets.
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any

from halfmoon.adapters.kafka.durable import refuse, tells_state
from halfmoon.adapters.kafka.errors import NONE, code_of
from halfmoon.adapters.kafka.lookup import partition_of
from halfmoon.adapters.kafka.protocol import AlterShareGroupOffsetsResponse, Slices
from halfmoon.adapters.kafka.registry import Context
from halfmoon.errors import BrokerError, Fault
from halfmoon.services.share.service import ShareService

if TYPE_CHECKING:
    from halfmoon.core.catalog.topics import Partition

_Topic = AlterShareGroupOffsetsResponse.AlterShareGroupOffsetsResponseTopic
_Part = _Topic.AlterShareGroupOffsetsResponsePartition


def _fail(answer: Any, error: Exception) -> object:
    for part in (part for topic in answer.responses for part in topic.partitions if part.error_code == NONE):
        refuse(part, error)
    return answer


@tells_state(_fail)
def handle(ctx: Context, request: Any) -> Slices[object]:
    shares = ctx.services.get(ShareService)
    response = AlterShareGroupOffsetsResponse(throttle_time_ms=0, error_code=NONE, error_message=None, responses=[])
    try:
        shares.check_name(request.group_id)
        shares.check_empty(request.group_id)
    except BrokerError as error:
        refuse(response, error)
        return response
    starts: list[tuple[Partition, int]] = []
    changed = []
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
                offset = min(max(each.start_offset, partition.start_offset), partition.high_watermark)
                starts.append((partition, offset))
                changed.append(part)
            except BrokerError as error:
                part.error_code, part.error_message = code_of(error), str(error)
        topic_id = None if topic is None else uuid.UUID(bytes=topic.id)
        response.responses.append(_Topic(topic_name=asked.topic_name, topic_id=topic_id, partitions=parts))
    if starts:
        try:
            shares.reset(request.group_id, starts)
        except BrokerError as error:
            for part in changed:
                refuse(part, error)
    return response
