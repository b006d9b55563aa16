"""OffsetFetch (9): a group's progress. One group until version 7, several from version 8 on (KIP-709).

Topics are given by name until version 9, by id in version 10 (KIP-848); null (from version 2 on) asks for all that the
group has committed. A partition without progress, known or not, is answered −1 without an error. With `require_stable`
(version 7 on, KIP-447) a partition for which a transaction has progress that is not decided is answered
UNSTABLE_OFFSET_COMMIT. From version 9 on a member of a new consumer group says its id and epoch, and is refused if they
are not right (25, 113).
"""

from __future__ import annotations

from collections.abc import Mapping
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import UUID

from halfmoon.adapters.kafka.durable import tells_state
from halfmoon.adapters.kafka.errors import NONE, code
from halfmoon.adapters.kafka.protocol import OffsetFetchResponse, Slices
from halfmoon.adapters.kafka.registry import Context
from halfmoon.errors import Fault
from halfmoon.kafka_wire.slices import EVERY
from halfmoon.services.groups.service import GroupService

if TYPE_CHECKING:
    from halfmoon.core.catalog.topics import Topic
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


@tells_state()
def handle(ctx: Context, request: Any) -> Slices[object]:
    if ctx.api_version >= 8:
        # A group that is named twice is answered once: null topics stand for all that it has.
        groups = []
        for group in {each.group_id: each for each in request.groups}.values():
            groups.append((yield from _group(ctx, group, request.require_stable)))
            yield
        return OffsetFetchResponse(throttle_time_ms=0, groups=groups)
    result = OffsetFetchResponse.OffsetFetchResponseTopic
    topics = []
    for topic in (yield from _topics(ctx, request.group_id, request.topics, request.require_stable)):
        partitions = yield from _partitions(result.OffsetFetchResponsePartition, topic)
        topics.append(result(name=topic.name, partitions=partitions))
    return OffsetFetchResponse(throttle_time_ms=0, error_code=NONE, topics=topics)


def _group(ctx: Context, group: Any, require_stable: bool) -> Slices[object]:
    result = OffsetFetchResponse.OffsetFetchResponseGroup
    fault = ctx.services.get(GroupService).coordinator.check_fetch(group.group_id, group.member_id, group.member_epoch)
    if fault is not None:
        return result(group_id=group.group_id, error_code=code(fault), topics=[])
    topic_result = result.OffsetFetchResponseTopics
    topics = []
    for topic in (yield from _topics(ctx, group.group_id, group.topics, require_stable)):
        partitions = yield from _partitions(topic_result.OffsetFetchResponsePartitions, topic)
        topics.append(topic_result(name=topic.name, topic_id=topic.topic_id, partitions=partitions))
    return result(group_id=group.group_id, error_code=NONE, topics=topics)


def _partitions(result: Any, topic: _Topic) -> Slices[list[object]]:
    made = []
    for index, committed, error_code in topic.partitions:
        made.append(
            result(
                partition_index=index,
                committed_offset=NO_OFFSET if committed is None else committed.offset,
                committed_leader_epoch=NO_EPOCH if committed is None else committed.leader_epoch,
                metadata="" if committed is None else committed.metadata,
                error_code=error_code,
            )
        )
        yield
    return made


def _topics(ctx: Context, group_id: str, asked: list[Any] | None, require_stable: bool) -> Slices[list[_Topic]]:
    groups = ctx.services.get(GroupService)
    offsets = groups.committed(group_id)
    unstable = groups.unstable(group_id) if require_stable else set()
    if asked is None:
        return (yield from _all(ctx, offsets, unstable))
    found = []
    by_id = ctx.api_version >= BY_ID
    for topic in asked:
        known = _find(ctx, topic)
        missing = code(Fault.UNKNOWN_TOPIC_ID) if by_id and known is None else NONE
        partitions: list[tuple[int, Committed | None, int]] = []
        for at, index in enumerate(topic.partition_indexes):
            if known is not None and (known.number, index) in unstable:
                partitions.append((index, None, _UNSTABLE))
            else:
                partitions.append((index, _progress(offsets, known, index), missing))
            if not at % EVERY:
                yield
        topic_id = topic.topic_id or NO_TOPIC_ID if by_id else NO_TOPIC_ID
        found.append(_Topic("" if by_id else topic.name, topic_id, partitions))
    return found


def _all(
    ctx: Context, offsets: Mapping[tuple[int, int], Committed], unstable: set[tuple[int, int]]
) -> Slices[list[_Topic]]:
    """All progress, by topic name and partition."""
    by_topic: dict[Topic, list[tuple[int, Committed | None, int]]] = {}
    for at, place in enumerate(list(offsets)):
        partition, committed = ctx.core.catalog.known_partition(*place), offsets.get(place)
        if partition is not None and committed is not None:
            progress = (place[1], None, _UNSTABLE) if place in unstable else (place[1], committed, NONE)
            by_topic.setdefault(partition.topic, []).append(progress)
        if not at % EVERY:
            yield
    found = []
    for topic in sorted(by_topic, key=lambda topic: topic.name):
        found.append(_Topic(topic.name, UUID(bytes=topic.id), sorted(by_topic[topic], key=itemgetter(0))))
        yield
    return found


def _find(ctx: Context, asked: Any) -> Topic | None:
    if ctx.api_version < BY_ID:
        return ctx.core.catalog.topic(asked.name)
    return None if asked.topic_id is None else ctx.core.catalog.topic_by_id(asked.topic_id.bytes)


def _progress(offsets: Mapping[tuple[int, int], Committed], topic: Topic | None, index: int) -> Committed | None:
    if topic is None or not 0 <= index < len(topic.partitions):
        return None
    return offsets.get((topic.number, index))
