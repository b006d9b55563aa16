"""Which process owns a partition, a group or a transactional id, by what the shared catalog says."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from halfmoon.cluster.placement import Layout
from halfmoon.cluster.shared import SharedCatalog
from halfmoon.core.catalog.owners import Leader, OtherNode
from halfmoon.core.catalog.topics import Partition, Topic
from halfmoon.errors import BrokerError, Fault
from halfmoon.schema.durability import REPLICATION_FACTOR


def _as_it_is(_shard: int, _epoch: int) -> None:
    return None


class ShardOwners:
    """As core's Owners, of one process."""

    def __init__(
        self,
        shared: SharedCatalog,
        nodes: Mapping[int, OtherNode],
        owners: Sequence[int],
        me: int,
        layout: Layout,
        told_leader: Callable[[int, int], Leader | None] = _as_it_is,
        just_gone: Callable[[], Sequence[OtherNode]] = tuple,
        has_replicas: bool = False,
    ) -> None:
        """`nodes`: the processes that are known, this one among them, by their numbers, and `owners`: by shard, which
        process has it (−1: nobody knows); both as they are at each moment. `me`: the number of this one.
        `told_leader`: of a shard, and of the epoch of which the catalog says whose it is: whom clients are told
        instead, if they are.
        `just_gone`: nodes that clients are told of although they are not here any more."""
        self._shared = shared
        self._nodes = nodes
        self._owners = owners
        self._number = me
        self._layout = layout
        self._told_leader = told_leader
        self._just_gone = just_gone
        self.has_replicas = has_replicas
        self._seen: tuple[OtherNode, ...] = ()
        self._behind: dict[tuple[int, int], tuple[int, ...]] = {}
        """(leader, how many more) → the replicas behind it, of the nodes that were seen last."""

    @property
    def rack(self) -> str | None:
        return self._nodes[self._number].rack

    def shard_of(self, partition: Partition) -> int:
        """−1 where nobody knows the partition."""
        return self._shared.shard_of(partition.topic.number, partition.index)

    def owner_of(self, partition: Partition) -> int:
        shard = self.shard_of(partition)
        return -1 if shard < 0 else self._node_of(shard)

    def _node_of(self, shard: int) -> int:
        node = self._nodes.get(self._owners[shard])
        return -1 if node is None else node.node_id

    def _leader(self, shard: int) -> Leader:
        """As clients are told it."""
        epoch = self._shared.epochs.get(shard, -1)
        return self._told_leader(shard, epoch) or Leader(self._node_of(shard), epoch)

    def epoch_of(self, partition: Partition) -> int:
        return self._shared.epochs.get(self.shard_of(partition), -1)

    def leaders_of(self, topic: Topic) -> Sequence[Leader]:
        leaders = [self._leader(shard) for shard in self._shared.placements[topic.number]]
        more = self._more(topic)
        if more <= 0:
            return leaders
        return [leader._replace(others=self._others(leader.node_id, more)) for leader in leaders]

    def replicas_of(self, partition: Partition) -> tuple[int, ...]:
        """As clients are shown them, the leader first; none where nobody leads it."""
        leader = self.owner_of(partition)
        return () if leader < 0 else (leader, *self._others(leader, self._more(partition.topic)))

    def _more(self, topic: Topic) -> int:
        """How many replicas are shown beside the leader."""
        return int(topic.configs.get(REPLICATION_FACTOR, 1)) - 1 if self.has_replicas else 0

    def _others(self, leader: int, more: int) -> tuple[int, ...]:
        seen = tuple(self._nodes.values())
        if seen != self._seen:
            self._seen = seen
            self._behind.clear()
        found = self._behind.get((leader, more))
        if found is None:
            nodes = sorted(self._nodes.values(), key=lambda node: node.node_id)
            found = self._behind[leader, more] = behind(nodes, leader, more)
        return found

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

    def listed(self) -> Sequence[OtherNode]:
        return [*self.others(), *self._just_gone()]


def behind(nodes: Sequence[OtherNode], leader: int, more: int) -> tuple[int, ...]:
    """So many of the nodes that follow the leader, as far as there are: first one of each rack that has none yet, so
    that readers of as many racks as can be find a replica in theirs."""
    at = next((at for at, node in enumerate(nodes) if node.node_id == leader), -1)
    if at < 0 or more <= 0:
        return ()
    following = [*nodes[at + 1 :], *nodes[:at]]
    racks = {nodes[at].rack}
    new_racks = []
    for node in following:
        if node.rack not in racks:
            racks.add(node.rack)
            new_racks.append(node.node_id)
    rest = [node.node_id for node in following if node.node_id not in new_racks]
    return tuple([*new_racks, *rest][:more])
