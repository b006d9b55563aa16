"""Which process owns a partition, a group or a transactional id, by what the shared catalog says."""

from __future__ import annotations

from collections.abc import Sequence

from halfmoon.cluster.placement import coordinator_of, owner_of
from halfmoon.cluster.shared import SharedCatalog
from halfmoon.core.catalog.owners import Leader, OtherNode
from halfmoon.core.catalog.topics import Partition, Topic


class ShardOwners:
    """As core's Owners, of one process."""

    def __init__(self, shared: SharedCatalog, nodes: Sequence[OtherNode], me: int, shards: int) -> None:
        """`nodes`: all processes, this one included, by their numbers; `me`: the number of this one."""
        self._shared = shared
        self._nodes = nodes
        self._owners = [nodes[owner_of(shard, len(nodes))] for shard in range(shards)]
        """By shard."""
        self._me = nodes[me].node_id
        self._others = [node for number, node in enumerate(nodes) if number != me]
        self._shards = shards

    def moved(self, shard: int, process: int) -> None:
        """A shard is another process's from now on."""
        self._owners[shard] = self._nodes[process]

    def shard_of(self, partition: Partition) -> int:
        """−1 where nobody knows the partition."""
        shards = self._shared.placements.get(partition.topic.number, b"")
        return shards[partition.index] if partition.index < len(shards) else -1

    def owner_of(self, partition: Partition) -> int:
        shard = self.shard_of(partition)
        return -1 if shard < 0 else self._owners[shard].node_id

    def epoch_of(self, partition: Partition) -> int:
        return self._shared.epochs.get(self.shard_of(partition), -1)

    def leaders_of(self, topic: Topic) -> Sequence[Leader]:
        epochs, owners = self._shared.epochs, self._owners
        return [Leader(owners[shard].node_id, epochs.get(shard, -1)) for shard in self._shared.placements[topic.number]]

    def coordinator_of(self, name: str) -> OtherNode | None:
        node = self._owners[coordinator_of(name, self._shards)]
        return None if node.node_id == self._me else node

    def others(self) -> Sequence[OtherNode]:
        return self._others
