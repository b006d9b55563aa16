"""AlterPartitionReassignments (45): a partition stays where it is, on one node (KIP-455).

To be on that node alone is true already, so it is done at once. Anything else is refused, and there never is a
reassignment that could be cancelled (replicas null). Version 1 may forbid a change of the replication factor, which
there is none of either way.

Rules: ReplicationControlManager.alterPartitionReassignments.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from halfmoon.adapters.kafka.assignments import check_assignments
from halfmoon.adapters.kafka.durable import refuse
from halfmoon.adapters.kafka.lookup import changeable
from halfmoon.adapters.kafka.protocol import AlterPartitionReassignmentsResponse, Slices
from halfmoon.adapters.kafka.registry import Context
from halfmoon.errors import BrokerError, Fault

if TYPE_CHECKING:
    from halfmoon.adapters.tcp.core import Core

_Topic = AlterPartitionReassignmentsResponse.ReassignableTopicResponse
_Partition = _Topic.ReassignablePartitionResponse


def handle(ctx: Context, request: Any) -> Slices[object]:
    topics = []
    for asked in request.topics:
        results = []
        for partition in asked.partitions:
            yield
            result = _Partition(partition_index=partition.partition_index, error_code=0, error_message=None)
            results.append(result)
            try:
                _check(ctx.core, asked.name, partition.partition_index, partition.replicas)
            except BrokerError as error:
                refuse(result, error)
        topics.append(_Topic(name=asked.name, partitions=results))
    return AlterPartitionReassignmentsResponse(
        throttle_time_ms=0,
        allow_replication_factor_change=request.allow_replication_factor_change,
        error_code=0,
        error_message=None,
        responses=topics,
    )


def _check(core: Core, name: str, index: int, replicas: list[int] | None) -> None:
    """Raise BrokerError unless the partition is where it shall be."""
    topic = changeable(core, name)
    if not 0 <= index < len(topic.partitions):
        raise BrokerError(Fault.UNKNOWN_TOPIC_OR_PARTITION, f"no such partition: {name}-{index}")
    if replicas is None:
        raise BrokerError(Fault.NO_REASSIGNMENT_IN_PROGRESS)
    check_assignments([replicas], core.owners.owner_of(topic.partitions[index]))
