"""Finding the partition that a request names."""

from __future__ import annotations

from bisect import bisect_right

from halfmoon.adapters.tcp.core import Core
from halfmoon.core.catalog.topics import Partition, Topic
from halfmoon.errors import BrokerError, Fault


def partition_of(topic: Topic | None, index: int) -> Partition:
    """The partition of that index. Raises BrokerError(UNKNOWN_TOPIC_OR_PARTITION) if there is none."""
    if topic is None or not 0 <= index < len(topic.partitions):
        raise BrokerError(Fault.UNKNOWN_TOPIC_OR_PARTITION)
    return topic.partitions[index]


def check_owner(core: Core, partition: Partition) -> None:
    """Raises BrokerError(NOT_LEADER_OR_FOLLOWER) where another node owns the partition, or this one that has not opened
    it: a node that was started anew stands in the catalog as the owner of what it had."""
    if partition.is_remote() or core.owners.owner_of(partition) != core.node_id:
        raise BrokerError(Fault.NOT_LEADER_OR_FOLLOWER)


def topic_named(core: Core, name: str) -> Topic:
    """The topic of that name. Raises BrokerError(UNKNOWN_TOPIC_OR_PARTITION) if there is none."""
    topic = core.catalog.topic(name)
    if topic is None:
        raise BrokerError(Fault.UNKNOWN_TOPIC_OR_PARTITION, f"topic '{name}' does not exist")
    return topic


def changeable(core: Core, name: str) -> Topic:
    """The topic of that name, if clients may change it.

    Raises as `topic_named` does, or BrokerError(INVALID_TOPIC_EXCEPTION) if the topic is internal.
    """
    topic = topic_named(core, name)
    if topic.internal:
        raise BrokerError(Fault.INVALID_TOPIC_EXCEPTION, f"topic '{name}' is internal")
    return topic


def check_leader_epoch(core: Core, partition: Partition, epoch: int) -> None:
    """Compare the leader epoch a client knows from Metadata with the present one; -1 = it does not say (KIP-320).

    (The epoch of the partition's newest record may be older.) Raises BrokerError(FENCED_LEADER_EPOCH) if the client's
    is older, UNKNOWN_LEADER_EPOCH if it is newer.
    """
    if epoch == -1:
        return
    present = core.owners.epoch_of(partition)
    if epoch != present:
        raise BrokerError(Fault.FENCED_LEADER_EPOCH if epoch < present else Fault.UNKNOWN_LEADER_EPOCH)


def divergence(core: Core, partition: Partition, last_epoch: int, offset: int) -> tuple[int, int] | None:
    """Where the history of a reader, who has read up to this offset and in this epoch, leaves ours; None: it does not
    (KIP-595)."""
    epoch, end_offset = end_of_epoch(core, partition, last_epoch)
    return (epoch, end_offset) if epoch < last_epoch or end_offset < offset else None


def epoch_at(partition: Partition, offset: int) -> int:
    """The leader epoch of the record at that offset; -1 if the partition never had one."""
    index = bisect_right(partition.epochs, offset, key=lambda begun: begun[1])
    return partition.epochs[index - 1][0] if index else -1


def end_of_epoch(core: Core, partition: Partition, epoch: int) -> tuple[int, int]:
    """The largest known leader epoch not above `epoch`, and the offset where it ends: that where the next epoch begins.

    (-1, -1) if the epoch is still to come. The present epoch counts as begun at the log's end even before it has a
    record: a consumer that was told the next offset keeps it with the present epoch. Rule:
    LeaderEpochFileCache.endOffsetFor.
    """
    present = core.owners.epoch_of(partition)
    if not 0 <= epoch <= present:
        return -1, -1
    if epoch == present:
        return epoch, partition.next_offset
    begun = partition.epochs
    index = bisect_right(begun, epoch, key=lambda entry: entry[0])
    end = begun[index][1] if index < len(begun) else partition.next_offset
    return begun[index - 1][0] if index else epoch, end
