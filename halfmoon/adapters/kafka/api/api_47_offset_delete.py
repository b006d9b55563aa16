"""OffsetDelete (47): forget a group's progress in topics that it does not consume any more (KIP-496)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from halfmoon.adapters.kafka.durable import TELLING, each_of, tells_state
from halfmoon.adapters.kafka.errors import NONE, code, code_of
from halfmoon.adapters.kafka.group_errors import coordinator_code
from halfmoon.adapters.kafka.lookup import partition_of
from halfmoon.adapters.kafka.protocol import OffsetDeleteResponse, Slices
from halfmoon.adapters.kafka.registry import Context
from halfmoon.errors import BrokerError, Fault
from halfmoon.services.groups.service import GroupService

if TYPE_CHECKING:
    from halfmoon.core.catalog.topics import Partition

_Topic = OffsetDeleteResponse.OffsetDeleteResponseTopic

AT_ONCE = 1_000
"""So many partitions are forgotten by one record of the log, and in one turn of the loop."""


def _fail(result: Any, error: Exception) -> None:
    result.error_code = coordinator_code(error)


_fail_parts = each_of("partitions", _fail)


def _fail_all(answer: Any, error: Exception) -> object:
    if answer.error_code != NONE and answer.error_code in TELLING:
        _fail(answer, error)
    for topic in answer.topics:
        _fail_parts(topic, error)
    return answer


@tells_state(_fail_all)
def handle(ctx: Context, request: Any) -> Slices[object]:
    groups = ctx.services.get(GroupService)
    group_id: str = request.group_id
    fault = groups.check_offset_delete(group_id) if group_id else Fault.INVALID_GROUP_ID
    if fault is not None:
        return OffsetDeleteResponse(throttle_time_ms=0, error_code=code(fault), topics=[])
    subscribed = groups.coordinator.subscribed_topics(group_id)
    offsets = groups.committed(group_id)
    forgotten: list[Partition] = []
    topics, deleted = [], []
    for asked in request.topics:
        result = _Topic(name=asked.name, partitions=[])
        topics.append(result)
        topic = ctx.core.catalog.topic(asked.name)
        for part in asked.partitions:
            yield
            part_result = _Topic.OffsetDeleteResponsePartition(partition_index=part.partition_index, error_code=NONE)
            result.partitions.append(part_result)
            try:
                partition = partition_of(topic, part.partition_index)
            except BrokerError as error:
                part_result.error_code = code_of(error)
                continue
            if subscribed is None or asked.name in subscribed:
                part_result.error_code = code(Fault.GROUP_SUBSCRIBED_TO_TOPIC)
            elif (partition.topic.number, partition.index) in offsets:
                forgotten.append(partition)
                deleted.append(part_result)
    response = OffsetDeleteResponse(throttle_time_ms=0, error_code=NONE, topics=topics)
    # What is written together is checked together: the group may go on between two slices.
    for first in range(0, len(forgotten), AT_ONCE):
        some = deleted[first : first + AT_ONCE]
        try:
            fault = groups.check_offset_delete(group_id)
            if fault is not None and first:
                raise BrokerError(fault)
            groups.delete_offsets(group_id, forgotten[first : first + AT_ONCE])
        except BrokerError as error:
            for part_result in some:
                _fail(part_result, error)
        yield
    return response
