"""Which of this process's shards a request is about."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from halfmoon.adapters.kafka.registry import Deferred
from halfmoon.adapters.kafka.shards import Home
from halfmoon.cluster.asking import Asking, refused
from halfmoon.cluster.messages import HearBatch
from halfmoon.cluster.placement import coordinator_of
from halfmoon.core.catalog.topics import Topic
from halfmoon.errors import BrokerError, Fault
from halfmoon.server.assembly import Node
from halfmoon.server.workers.deletions import Deletions
from halfmoon.server.workers.front import Front

Change = Callable[[Callable[[], object], Callable[[object], None]], None]


class LocalShards:
    """See adapters/kafka/shards.Homes."""

    def __init__(
        self,
        front: Front,
        nodes: Mapping[int, Node],
        shards: int,
        change: Change,
        asking: Asking,
        everywhere: frozenset[str] = frozenset(),
    ) -> None:
        """`nodes`: by the number of the shard, those that are open here; `shards`: how many there are in all; `change`,
        `everywhere`: of Homes."""
        self.change = change
        self.ask_deletion = Deletions(front.administration, shards, asking).ask
        self.everywhere = everywhere
        self._asking = asking
        self._front = front
        self._shards = shards
        self._homes: dict[int, Home] = {}
        self._of_kernel: dict[int, Home] = {}
        self._all: list[Home] = []
        for number, node in nodes.items():
            self.add(number, node)

    def add(self, number: int, node: Node) -> None:
        """A shard that is this process's from now on."""
        home = self._homes[number] = self._of_kernel[id(node.kernel)] = Home(node.kernel, node.services)
        self._all.append(home)

    def remove(self, number: int) -> None:
        """It is another process's. One stays at least."""
        home = self._homes.pop(number)
        del self._of_kernel[id(home.core)]
        self._all.remove(home)

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

    def is_here(self, topic: Topic, index: int) -> bool:
        return 0 <= index < len(topic.partitions) and self._front.find_kernel(topic.partitions[index]) is not None

    def tell_all(self, topic: Topic, index: int, batch: bytes) -> Deferred:
        whole = Deferred()
        left: int = self._shards - 1
        refusal: BrokerError | None = None
        if not left:
            whole.complete(None)

        def told(answer: object) -> None:
            nonlocal left, refusal
            left -= 1
            refusal = refusal or refused(answer)
            if not left:
                whole.complete(refusal)

        own = self._front.shard_of(topic, index)
        for shard in range(self._shards):
            if shard != own:
                self._asking.ask(shard, HearBatch(topic.number, batch), told)
        return whole

    def all(self) -> Sequence[Home]:
        return self._all
