"""Which process owns a partition, a group or a transactional id, by what the shared catalog says."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from halfmoon.cluster.placement import Layout
from halfmoon.cluster.shared import SharedCatalog
from halfmoon.core.catalog.owners import Leader, OtherNode
from halfmoon.core.catalog.topics import Partition, Topic
from halfmoon.errors import BrokerError, Fault
from halfmoon.schema.durability import REPLICATION_FACTOR


def _never(_shard: int) -> bool:
    return False


class ShardOwners:
    """As core's Owners, of one process."""

    def __init__(
        self,
        shared: SharedCatalog,
        nodes: Mapping[int, OtherNode],
        owners: Sequence[int],
        me: int,
        layout: Layout,
        is_taken_soon: Callable[[int], bool] = _never,
        has_replicas: bool = False,
    ) -> None:
        """`nodes`: the processes that are known, this one among them, by their numbers, and `owners`: by shard, which
        process has it (−1: nobody knows); both as they are at each moment. `me`: the number of this one.
        `is_taken_soon`: whether a process is about to have a shard that none of them has."""
        self._shared = shared
        self._nodes = nodes
        self._owners = owners
        self._number = me
        self._layout = layout
        self._is_taken_soon = is_taken_soon
        self.has_replicas = has_replicas

    def shard_of(self, partition: Partition) -> int:
        """−1 where nobody knows the partition."""
        shards = self._shared.placements.get(partition.topic.number, b"")
        return shards[partition.index] if partition.index < len(shards) else -1

    def owner_of(self, partition: Partition) -> int:
        shard = self.shard_of(partition)
        return -1 if shard < 0 else self._node_of(shard)

    def _node_of(self, shard: int) -> int:
        node = self._nodes.get(self._owners[shard])
        return -1 if node is None else node.node_id

    def _shown(self, shard: int) -> int:
        """Whom clients are to ask. In place of a node that has died it is this one, until another has what was its: it
        refuses as one that does not lead the partition, and they ask again. Some that hear of a partition without a
        leader ask no more for minutes (librdkafka's ListOffsets)."""
        found = self._node_of(shard)
        return self._nodes[self._number].node_id if found < 0 and self._is_taken_soon(shard) else found

    def epoch_of(self, partition: Partition) -> int:
        return self._shared.epochs.get(self.shard_of(partition), -1)

    def leaders_of(self, topic: Topic) -> Sequence[Leader]:
        epochs, node_of = self._shared.epochs, self._shown
        placed = self._shared.placements[topic.number]
        leaders = [Leader(node_of(shard), epochs.get(shard, -1)) for shard in placed]
        more = int(topic.configs.get(REPLICATION_FACTOR, 1)) - 1 if self.has_replicas else 0
        if more <= 0:
            return leaders
        nodes = sorted(node.node_id for node in self._nodes.values())
        return [leader._replace(others=_behind(nodes, leader.node_id, more)) for leader in leaders]

    def coordinator_of(self, name: str) -> OtherNode | None:
        owner = self._owners[self._layout.coordinator_of(name)]
        if owner == self._number:
            return None
        node = self._nodes.get(owner)
        if node is None:
            raise BrokerError(Fault.COORDINATOR_NOT_AVAILABLE)
        return node

    def others(self) -> Sequence[OtherNode]:
        return [node for number, node in self._nodes.items() if number != self._number]


def _behind(nodes: Sequence[int], leader: int, more: int) -> tuple[int, ...]:
    """So many of the nodes that follow the leader, as far as there are."""
    if leader not in nodes:
        return ()
    at = nodes.index(leader)
    return tuple([*nodes[at + 1 :], *nodes[:at]][:more])
