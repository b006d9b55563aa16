"""DeleteRecords (21): move a partition's start offset forward, to the high watermark at most (KIP-107).

Rules: Partition.deleteRecordsOnLeader. The answer names the new start offset, which is the old one where that lay
further on.
"""

from __future__ import annotations

from typing import Any

from halfmoon.adapters.kafka.durable import each_of, tells_state
from halfmoon.adapters.kafka.errors import code_of
from halfmoon.adapters.kafka.lookup import changeable, check_owner, partition_of
from halfmoon.adapters.kafka.protocol import DeleteRecordsResponse, Slices
from halfmoon.adapters.kafka.registry import Context
from halfmoon.errors import BrokerError, Fault

_TopicResult = DeleteRecordsResponse.DeleteRecordsTopicResult
_PartitionResult = _TopicResult.DeleteRecordsPartitionResult

HIGH_WATERMARK = -1
"""In the place of an offset: delete all that is visible."""


def _fail(result: Any, error: Exception) -> None:
    result.error_code = code_of(error)
    result.low_watermark = -1


def _fail_all(answer: Any, error: Exception) -> object:
    for topic in answer.topics:
        _fail_parts(topic, error)
    return answer


_fail_parts = each_of("partitions", _fail)


@tells_state(_fail_all)
def handle(ctx: Context, request: Any) -> Slices[object]:
    topics = []
    for topic in request.topics:
        results = []
        for wanted in topic.partitions:
            yield
            result = _PartitionResult(partition_index=wanted.partition_index, low_watermark=-1, error_code=0)
            results.append(result)
            try:
                partition = partition_of(changeable(ctx.core, topic.name), wanted.partition_index)
                check_owner(ctx.core, partition)
                if wanted.offset < HIGH_WATERMARK:
                    raise BrokerError(Fault.OFFSET_OUT_OF_RANGE)
                result.low_watermark, _ = ctx.core.administration.delete_records(partition, wanted.offset)
            except BrokerError as error:
                _fail(result, error)
        topics.append(_TopicResult(name=topic.name, partitions=results))
    return DeleteRecordsResponse(throttle_time_ms=0, topics=topics)
