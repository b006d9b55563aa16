"""OffsetCommit (8): a group's progress. Topics by name until version 9, by id in version 10 (KIP-848).

Who may commit is the group coordinator's to say (22, 25, 27, 82); what cannot be committed (unknown partition, metadata
too long) fails by itself and leaves the rest alone. The offset is stored as it comes: it may go back, and need not
exist. Retention times of versions 2 to 4 are ignored, since groups' offsets expire together (KIP-211).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from halfmoon.adapters.kafka.durable import when_durable
from halfmoon.adapters.kafka.errors import NONE, code, code_of
from halfmoon.adapters.kafka.group_errors import MAX_METADATA_LENGTH, OFFSET_METADATA_TOO_LARGE, coordinator_code
from halfmoon.adapters.kafka.lookup import partition_of
from halfmoon.adapters.kafka.protocol import OffsetCommitResponse
from halfmoon.adapters.kafka.registry import Context, api
from halfmoon.core.errors import BrokerError, Fault

if TYPE_CHECKING:
    from halfmoon.core.catalog import Partition, Topic

BY_ID = 10
"""From this version on topics are given by id, and only so."""

_TopicResult = OffsetCommitResponse.OffsetCommitResponseTopic


@api(8, "OffsetCommit", 2, 10)
def offset_commit(ctx: Context, request: Any) -> object:
    entries: list[tuple[Partition, int, int, str]] = []
    results, committed = [], []
    for asked in request.topics:
        topic, missing = _find(ctx, asked)
        result = _TopicResult(name=asked.name, topic_id=asked.topic_id, partitions=[])
        results.append(result)
        for part in asked.partitions:
            part_result = _TopicResult.OffsetCommitResponsePartition(
                partition_index=part.partition_index, error_code=NONE
            )
            result.partitions.append(part_result)
            try:
                partition = partition_of(topic, part.partition_index)
            except BrokerError as error:
                part_result.error_code = missing or code_of(error)
                continue
            metadata = part.committed_metadata or ""
            if len(metadata) > MAX_METADATA_LENGTH:
                part_result.error_code = OFFSET_METADATA_TOO_LARGE
                continue
            committed.append(part_result)
            entries.append((partition, part.committed_offset, part.committed_leader_epoch, metadata))
    response = OffsetCommitResponse(throttle_time_ms=0, topics=results)
    if not entries:
        return response
    try:
        position = ctx.broker.groups.commit(
            request.group_id,
            request.generation_id_or_member_epoch,
            request.member_id,
            request.group_instance_id,
            entries,
        )
    except BrokerError as error:
        for part_result in committed:
            part_result.error_code = _group_code(ctx, error)
        return response
    return when_durable(ctx, position, response, committed, _fail)


def _find(ctx: Context, asked: Any) -> tuple[Topic | None, int]:
    """The topic, or the code for one that is not there (0: nothing special)."""
    if ctx.api_version < BY_ID:
        return ctx.broker.topic(asked.name), NONE
    topic = None if asked.topic_id is None else ctx.broker.topic_by_id(asked.topic_id.bytes)
    return topic, NONE if topic is not None else code(Fault.UNKNOWN_TOPIC_ID)


def _group_code(ctx: Context, error: BrokerError) -> int:
    if error.fault is Fault.GROUP_ID_NOT_FOUND and ctx.api_version < 9:
        # Clients of older versions know only this answer to a generation of a group that is not there.
        return code(Fault.ILLEGAL_GENERATION)
    return coordinator_code(error)


def _fail(result: Any, error: Exception) -> None:
    result.error_code = coordinator_code(error)
