"""Which of this process's shards a request is about."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from halfmoon.adapters.kafka.shards import Home
from halfmoon.cluster.placement import coordinator_of
from halfmoon.core.catalog.topics import Topic
from halfmoon.errors import BrokerError, Fault
from halfmoon.server.assembly import Node
from halfmoon.server.workers.front import Front

Change = Callable[[Callable[[], object], Callable[[object], None]], None]


class LocalShards:
    """See adapters/kafka/shards.Homes."""

    def __init__(self, front: Front, nodes: Mapping[int, Node], shards: int, change: Change) -> None:
        """`nodes`: by the number of the shard, those that are open here; `shards`: how many there are in all; `change`:
        of Homes."""
        self.change = change
        self._front = front
        self._shards = shards
        self._homes = {number: Home(node.kernel, node.services) for number, node in nodes.items()}
        self._all = list(self._homes.values())
        self._of_kernel = {id(node.kernel): self._homes[number] for number, node in nodes.items()}

    def coordinator(self, name: str) -> Home:
        home = self._homes.get(coordinator_of(name, self._shards))
        if home is None:
            raise BrokerError(Fault.NOT_COORDINATOR)
        return home

    def home_of(self, topic: Topic | None, index: int) -> Home:
        if topic is not None and 0 <= index < len(topic.partitions):
            kernel = self._front.find_kernel(topic.partitions[index])
            if kernel is not None:
                return self._of_kernel[id(kernel)]
        return self._all[0]

    def all(self) -> Sequence[Home]:
        return self._all
