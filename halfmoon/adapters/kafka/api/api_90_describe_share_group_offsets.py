"""DescribeShareGroupOffsets (90): from where on share groups have not finished, and how many records that are
(KIP-932; version 1: the lag, KIP-1226).

Without topics it is all that the group has ever looked at. The lag counts the records from the start offset to the high
watermark, without those behind it that are finished already. A partition at which the group has not looked has start
offset and lag −1.

Rules: GroupCoordinatorService.describeShareGroupOffsets, describeShareGroupAllOffsets.
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any

from halfmoon.adapters.kafka.durable import tells_state
from halfmoon.adapters.kafka.errors import NONE, code_of
from halfmoon.adapters.kafka.lookup import epoch_at, partition_of
from halfmoon.adapters.kafka.protocol import DescribeShareGroupOffsetsResponse, Slices
from halfmoon.adapters.kafka.registry import Context
from halfmoon.errors import BrokerError
from halfmoon.services.share.service import ShareService

if TYPE_CHECKING:
    from collections.abc import Iterable

    from halfmoon.core.catalog.topics import Topic

_Group = DescribeShareGroupOffsetsResponse.DescribeShareGroupOffsetsResponseGroup
_Topic = _Group.DescribeShareGroupOffsetsResponseTopic
_Part = _Topic.DescribeShareGroupOffsetsResponsePartition

UNKNOWN = -1


@tells_state()
def handle(ctx: Context, request: Any) -> Slices[object]:
    groups = []
    for asked in request.groups:
        groups.append((yield from _group(ctx, asked)))
        yield
    return DescribeShareGroupOffsetsResponse(throttle_time_ms=0, groups=groups)


def _group(ctx: Context, asked: Any) -> Slices[object]:
    topics = []
    if asked.topics is None:
        looked_at: dict[str, list[int]] = {}
        for partition in ctx.services.get(ShareService).looked_at(asked.group_id):
            looked_at.setdefault(partition.topic.name, []).append(partition.index)
        for name, indexes in sorted(looked_at.items()):
            topics.append((yield from _topic(ctx, asked.group_id, name, sorted(indexes))))
    else:
        for each in asked.topics:
            topics.append((yield from _topic(ctx, asked.group_id, each.topic_name, each.partitions)))
            yield
    return group(asked.group_id, topics)


def group(name: str, topics: list[object]) -> Any:
    return _Group(group_id=name, topics=topics, error_code=NONE, error_message=None)


def topic(known: Topic | None, name: str, parts: list[object]) -> object:
    return _Topic(topic_name=name, topic_id=None if known is None else uuid.UUID(bytes=known.id), partitions=parts)


def part(
    index: int, start: int = UNKNOWN, epoch: int = 0, lag: int = UNKNOWN, error: BrokerError | None = None
) -> object:
    error_code, message = (NONE, None) if error is None else (code_of(error), str(error))
    return _Part(
        partition_index=index, start_offset=start, leader_epoch=epoch, lag=lag, error_code=error_code,
        error_message=message,
    )  # fmt: skip


def _topic(ctx: Context, group_id: str, name: str, indexes: Iterable[int]) -> Slices[object]:
    known = ctx.core.catalog.topic(name)
    parts: list[object] = []
    for index in indexes:
        parts.append(_part(ctx, group_id, known, index))
        yield
    return topic(known, name, parts)


def _part(ctx: Context, group_id: str, known: Topic | None, index: int) -> object:
    try:
        partition = partition_of(known, index)
        progress = ctx.services.get(ShareService).progress(group_id, partition)
    except BrokerError as error:
        return part(index, error=error)
    if progress is None:
        return part(index)
    return part(index, progress.start, max(0, epoch_at(partition, progress.start)), progress.lag)
