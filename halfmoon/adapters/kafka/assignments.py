"""Manual assignments of partitions to brokers, as CreateTopics and CreatePartitions take them."""

from __future__ import annotations

from collections.abc import Sequence

from halfmoon.errors import BrokerError, Fault


def same_length(replicas_by_partition: Sequence[Sequence[int]]) -> int:
    """How many replicas each partition is assigned to, where they may be anywhere. Raises BrokerError(
    INVALID_REPLICA_ASSIGNMENT)."""
    lengths = {len(replicas) for replicas in replicas_by_partition}
    if len(lengths) != 1 or 0 in lengths or any(len(set(each)) != len(each) for each in replicas_by_partition):
        raise BrokerError(
            Fault.INVALID_REPLICA_ASSIGNMENT, "all partitions must have the same number of replicas, each once"
        )
    return lengths.pop()


def check_assignments(replicas_by_partition: Sequence[Sequence[int]], node_id: int) -> None:
    """Raise BrokerError(INVALID_REPLICA_ASSIGNMENT) unless every partition is assigned to this node alone."""
    for replicas in replicas_by_partition:
        if list(replicas) != [node_id]:
            raise BrokerError(
                Fault.INVALID_REPLICA_ASSIGNMENT,
                f"a partition cannot be assigned to brokers {replicas}: this is a single node, it must be [{node_id}]",
            )
