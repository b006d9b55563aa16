"""OffsetFetch (9): a group's progress. One group until version 7, several from version 8 on (KIP-709).

Topics are given by name until version 9, by id in version 10 (KIP-848); null (from version 2 on) asks for all that the
group has committed. A partition without progress, known or not, is answered −1 without an error. With `require_stable`
(version 7 on, KIP-447) a partition for which a transaction has progress that is not decided is answered
UNSTABLE_OFFSET_COMMIT. From version 9 on a member of a new consumer group says its id and epoch, and is refused if they
are not right (25, 113).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import UUID

from halfmoon.adapters.kafka.durable import tells_state
from halfmoon.adapters.kafka.errors import NONE, code
from halfmoon.adapters.kafka.protocol import OffsetFetchResponse
from halfmoon.adapters.kafka.registry import Context, api
from halfmoon.errors import Fault
from halfmoon.services.groups.service import GroupService

if TYPE_CHECKING:
    from halfmoon.core.catalog.topics import Partition, Topic
    from halfmoon.schema.control import Committed

BY_ID = 10
"""From this version on topics are given by id, and only so."""

NO_OFFSET = -1
NO_EPOCH = -1
NO_TOPIC_ID = UUID(int=0)
_UNSTABLE = code(Fault.UNSTABLE_OFFSET_COMMIT)


class _Topic(NamedTuple):
    """One topic of an answer, whatever the version: partitions with their progress, or all of them with an error."""

    name: str
    topic_id: UUID
    partitions: list[tuple[int, Committed | None, int]]
    """Index, progress, error code."""


@api(9, "OffsetFetch", 1, 10, service=GroupService)
@tells_state()
def offset_fetch(ctx: Context, request: Any) -> object:
    if ctx.api_version >= 8:
        # A group that is named twice is answered once: null topics stand for all that it has.
        groups = [
            _group(ctx, group, request.require_stable)
            for group in {each.group_id: each for each in request.groups}.values()
        ]
        return OffsetFetchResponse(throttle_time_ms=0, groups=groups)
    topics = [
        OffsetFetchResponse.OffsetFetchResponseTopic(
            name=topic.name,
            partitions=_partitions(OffsetFetchResponse.OffsetFetchResponseTopic.OffsetFetchResponsePartition, topic),
        )
        for topic in _topics(ctx, request.group_id, request.topics, request.require_stable)
    ]
    return OffsetFetchResponse(throttle_time_ms=0, error_code=NONE, topics=topics)


def _group(ctx: Context, group: Any, require_stable: bool) -> object:
    result = OffsetFetchResponse.OffsetFetchResponseGroup
    fault = ctx.services.get(GroupService).coordinator.check_fetch(group.group_id, group.member_id, group.member_epoch)
    if fault is not None:
        return result(group_id=group.group_id, error_code=code(fault), topics=[])
    topic_result = result.OffsetFetchResponseTopics
    topics = [
        topic_result(
            name=topic.name,
            topic_id=topic.topic_id,
            partitions=_partitions(topic_result.OffsetFetchResponsePartitions, topic),
        )
        for topic in _topics(ctx, group.group_id, group.topics, require_stable)
    ]
    return result(group_id=group.group_id, error_code=NONE, topics=topics)


def _partitions(result: Any, topic: _Topic) -> list[object]:
    return [
        result(
            partition_index=index,
            committed_offset=NO_OFFSET if committed is None else committed.offset,
            committed_leader_epoch=NO_EPOCH if committed is None else committed.leader_epoch,
            metadata="" if committed is None else committed.metadata,
            error_code=error_code,
        )
        for index, committed, error_code in topic.partitions
    ]


def _topics(ctx: Context, group_id: str, asked: list[Any] | None, require_stable: bool) -> Iterator[_Topic]:
    groups = ctx.services.get(GroupService)
    offsets = groups.offsets(group_id)
    unstable = groups.unstable(group_id) if require_stable else set()
    if asked is None:
        yield from _all(offsets, unstable)
        return
    for topic in asked:
        by_id = ctx.api_version >= BY_ID
        known = _find(ctx, topic)
        missing = code(Fault.UNKNOWN_TOPIC_ID) if by_id and known is None else NONE
        yield _Topic(
            "" if by_id else topic.name,
            topic.topic_id or NO_TOPIC_ID if by_id else NO_TOPIC_ID,
            [
                (index, None, _UNSTABLE)
                if known is not None and (known.number, index) in unstable
                else (index, _progress(offsets, known, index), missing)
                for index in topic.partition_indexes
            ],
        )


def _all(offsets: dict[Partition, Committed], unstable: set[tuple[int, int]]) -> Iterator[_Topic]:
    """All progress, by topic name and partition."""
    by_topic: dict[str, list[Partition]] = {}
    for partition in offsets:
        by_topic.setdefault(partition.topic.name, []).append(partition)
    for name in sorted(by_topic):
        topic = by_topic[name][0].topic
        partitions = sorted(by_topic[name], key=lambda partition: partition.index)
        yield _Topic(
            name,
            UUID(bytes=topic.id),
            [
                (each.index, None, _UNSTABLE)
                if (topic.number, each.index) in unstable
                else (each.index, offsets[each], NONE)
                for each in partitions
            ],
        )


def _find(ctx: Context, asked: Any) -> Topic | None:
    if ctx.api_version < BY_ID:
        return ctx.core.catalog.topic(asked.name)
    return None if asked.topic_id is None else ctx.core.catalog.topic_by_id(asked.topic_id.bytes)


def _progress(offsets: dict[Partition, Committed], topic: Topic | None, index: int) -> Committed | None:
    if topic is None or not 0 <= index < len(topic.partitions):
        return None
    return offsets.get(topic.partitions[index])
