"""OffsetForLeaderEpoch (23): where a leader epoch ends, so that a consumer notices a log that was cut.

Rules: KIP-101, KIP-320. Here every start of the node begins a new epoch, so a consumer that is ahead of what survived a
power loss learns that its position does not exist any more.
"""

from __future__ import annotations

from typing import Any

from halfmoon.adapters.kafka.errors import code_of
from halfmoon.adapters.kafka.lookup import check_leader_epoch, check_owner, end_of_epoch, partition_of, topic_named
from halfmoon.adapters.kafka.protocol import OffsetForLeaderEpochResponse, Slices
from halfmoon.adapters.kafka.registry import Context
from halfmoon.errors import BrokerError

_TopicResult = OffsetForLeaderEpochResponse.OffsetForLeaderTopicResult


def handle(ctx: Context, request: Any) -> Slices[object]:
    topics = []
    for topic in request.topics:
        partitions = []
        for wanted in topic.partitions:
            partitions.append(_end_of_epoch(ctx, topic.topic, wanted))
            yield
        topics.append(_TopicResult(topic=topic.topic, partitions=partitions))
    return OffsetForLeaderEpochResponse(throttle_time_ms=0, topics=topics)


def _end_of_epoch(ctx: Context, name: str, wanted: Any) -> Any:
    result = _TopicResult.EpochEndOffset(error_code=0, partition=wanted.partition, leader_epoch=-1, end_offset=-1)
    try:
        partition = partition_of(topic_named(ctx.core, name), wanted.partition)
        check_owner(ctx.core, partition)
        check_leader_epoch(ctx.core, partition, wanted.current_leader_epoch)
        result.leader_epoch, result.end_offset = end_of_epoch(ctx.core, partition, wanted.leader_epoch)
    except BrokerError as error:
        result.error_code = code_of(error)
    return result
