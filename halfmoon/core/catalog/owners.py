"""Which node owns a partition, or coordinates a group: it takes the records, and answers for them.

Every request that produces to a partition, reads it or says where it is asks here. Today a node owns all there are.
Where several nodes share the partitions, something else takes the place of `ThisNode` (`kernel.owners`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from halfmoon.core.catalog.topics import Partition, Topic


class OtherNode(NamedTuple):
    """A node that owns partitions, as clients reach it."""

    node_id: int
    kafka: tuple[str, int]
    """Host and port."""
    broker_name: str
    """What RocketMQ's clients call it."""
    rocketmq: tuple[str, int]
    rack: str | None = None
    """The zone that it is in, as consumers name it (KIP-392)."""


class Leader(NamedTuple):
    """Who leads a partition."""

    node_id: int
    """−1: nobody does now."""
    epoch: int
    """The leader epoch; −1 where it is not known here."""
    others: tuple[int, ...] = ()
    """Further nodes that count as replicas."""


class Owners(Protocol):
    @property
    def has_replicas(self) -> bool:
        """Whether a topic may have any replication factor, and all of its replicas count as in sync."""
        ...

    @property
    def rack(self) -> str | None:
        """The zone that this node is in; None: it has not said."""
        ...

    def owner_of(self, partition: Partition) -> int:
        """The id of the node; −1 where none owns it now. Cheap: produced batches and fetches ask it."""
        ...

    def epoch_of(self, partition: Partition) -> int:
        """The leader epoch of a partition that this node owns."""
        ...

    def leaders_of(self, topic: Topic) -> Sequence[Leader] | None:
        """Of all partitions; None where this node owns them all, in one epoch."""
        ...

    def coordinator_of(self, name: str) -> OtherNode | None:
        """Of a group, or of a transactional id; None: this node. Raises BrokerError(COORDINATOR_NOT_AVAILABLE)."""
        ...

    def others(self) -> Sequence[OtherNode]:
        """All nodes but this one."""
        ...

    def listed(self) -> Sequence[OtherNode]:
        """All nodes but this one that clients are told of: these, and those that died a moment ago."""
        ...


class ThisNode:
    """It owns everything."""

    has_replicas = False
    rack: str | None = None

    def __init__(self) -> None:
        self.node_id = -1
        self.epoch = -1
        """Both are known once the data directory is open."""

    def owner_of(self, partition: Partition) -> int:
        return self.node_id

    def epoch_of(self, partition: Partition) -> int:
        return self.epoch

    def leaders_of(self, topic: Topic) -> Sequence[Leader] | None:
        return None

    def coordinator_of(self, name: str) -> OtherNode | None:
        return None

    def others(self) -> Sequence[OtherNode]:
        return ()

    def listed(self) -> Sequence[OtherNode]:
        return ()
