"""DescribeProducers (61): which producers a partition knows, and where their open transactions begin (KIP-664)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from halfmoon.adapters.kafka.durable import tells_state
from halfmoon.adapters.kafka.errors import NONE, code_of
from halfmoon.adapters.kafka.lookup import changeable, check_owner, partition_of
from halfmoon.adapters.kafka.protocol import DescribeProducersResponse, Slices
from halfmoon.adapters.kafka.registry import Context
from halfmoon.errors import BrokerError

if TYPE_CHECKING:
    from halfmoon.core.catalog.topics import Partition

NOWHERE = -1

_Topic = DescribeProducersResponse.TopicResponse


@tells_state()
def handle(ctx: Context, request: Any) -> Slices[object]:
    topics = []
    for topic in request.topics:
        partitions = []
        for index in topic.partition_indexes:
            partitions.append((yield from _partition(ctx, topic.name, index)))
            yield
        topics.append(_Topic(name=topic.name, partitions=partitions))
    return DescribeProducersResponse(throttle_time_ms=0, topics=topics)


def _partition(ctx: Context, topic: str, index: int) -> Slices[object]:
    result = _Topic.PartitionResponse(partition_index=index, error_code=NONE, error_message=None, active_producers=[])
    try:
        partition = partition_of(changeable(ctx.core, topic), index)
        check_owner(ctx.core, partition)
    except BrokerError as error:
        result.error_code, result.error_message = code_of(error), error.message
        return result
    result.active_producers = yield from _producers(ctx, partition)
    return result


def _producers(ctx: Context, partition: Partition) -> Slices[list[object]]:
    if partition.producers is None:
        return []
    begun = {} if partition.transactions is None else partition.transactions.open
    found: list[object] = []
    for producer_id, known in list(partition.producers.by_id.items()):
        found.append(
            _Topic.PartitionResponse.ProducerState(
                producer_id=producer_id,
                producer_epoch=known.epoch,
                last_sequence=known.batches[-1].last_sequence if known.batches else NOWHERE,
                last_timestamp=known.last_ms,
                coordinator_epoch=ctx.core.owners.epoch_of(partition),
                current_txn_start_offset=begun.get(producer_id, NOWHERE),
            )
        )
        yield
    return found
