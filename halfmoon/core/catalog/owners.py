"""Which node owns a partition: it takes its records, and answers for them.

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


class Owners(Protocol):
    def owner_of(self, partition: Partition) -> int:
        """The id of the node; −1 where none owns it now. Cheap: produced batches and fetches ask it."""
        ...

    def owners_of(self, topic: Topic) -> Sequence[int] | None:
        """Of all partitions; None where this node owns them all."""
        ...

    def others(self) -> Sequence[OtherNode]:
        """All nodes but this one."""
        ...


class ThisNode:
    """It owns everything."""

    def __init__(self) -> None:
        self.node_id = -1
        """Known once the data directory is open."""

    def owner_of(self, partition: Partition) -> int:
        return self.node_id

    def owners_of(self, topic: Topic) -> Sequence[int] | None:
        return None

    def others(self) -> Sequence[OtherNode]:
        return ()
