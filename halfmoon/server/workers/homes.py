"""Which of this process's shards a request is about."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence

from halfmoon.adapters.kafka.registry import Deferred
from halfmoon.adapters.kafka.shards import Confirm, Home
from halfmoon.cluster.asking import Asking, refused
from halfmoon.cluster.messages import HearBatch, NewProducer, ProducerFound
from halfmoon.cluster.placement import Layout
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
        layout: Layout,
        change: Change,
        asking: Asking,
        everywhere: frozenset[str] = frozenset(),
        confirm: Confirm | None = None,
    ) -> None:
        """`nodes`: by the number of the shard, those that are open here, the one that stays first; `change`,
        `everywhere`, `confirm`: of Homes."""
        self.change = change
        self.ask_deletion = Deletions(front.administration, layout.shards, asking).ask
        self.everywhere = everywhere
        self.confirm = confirm
        self._asking = asking
        self._front = front
        self._layout = layout
        self._homes: dict[int, Home] = {}
        self._of_kernel: dict[int, Home] = {}
        self._all: list[Home] = []
        first = next(iter(nodes.values()))
        self._stays = Home(first.kernel, first.services)
        for number, node in nodes.items():
            if number < layout.shards:  # a node's own, which stays, has nothing of the topics
                self.add(number, node)

    def add(self, number: int, node: Node) -> None:
        """A shard that is this process's from now on."""
        home = self._homes[number] = self._of_kernel[id(node.kernel)] = Home(node.kernel, node.services)
        self._all.append(home)

    def remove(self, number: int) -> None:
        """It is another process's."""
        home = self._homes.pop(number, None)
        if home is not None:
            del self._of_kernel[id(home.core)]
            self._all.remove(home)

    def coordinator(self, name: str) -> Home:
        home = self._homes.get(self._layout.coordinator_of(name))
        if home is None:
            raise BrokerError(Fault.NOT_COORDINATOR)
        return home

    def home_of(self, topic: Topic | None, index: int) -> Home:
        if topic is not None and 0 <= index < len(topic.partitions):
            kernel = self._front.find_kernel(topic.partitions[index])
            if kernel is not None:
                return self._of_kernel[id(kernel)]
        return self._stays

    def is_here(self, topic: Topic, index: int) -> bool:
        return 0 <= index < len(topic.partitions) and self._front.find_kernel(topic.partitions[index]) is not None

    def tell_all(self, topic: Topic, index: int, batch: bytes) -> Deferred:
        whole = Deferred()
        left: int = self._layout.shards - 1
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
        for shard in range(self._layout.shards):
            if shard != own:
                self._asking.ask(shard, HearBatch(topic.number, batch), told)
        return whole

    def new_producer(self, told: Callable[[int | BrokerError], None]) -> None:
        """One shard after the other is asked, until one can be reached."""
        _ProducerAsked(self._asking, random.sample(range(self._layout.fast), self._layout.fast), told).go_on()

    def all(self) -> Sequence[Home]:
        return self._all

    def fast(self) -> Home | None:
        # One of which the database has lost something stays open, and takes no writes (docs/decisions/0181).
        writable = (number for number, home in self._homes.items() if home.core.log.failed is None)
        number = self._layout.fast_one(writable)
        return None if number is None else self._homes[number]

    def stays(self) -> Home:
        return self._stays


class _ProducerAsked:
    """Where a shard cannot be reached, its answer may come before `ask` returns: then the next one is asked there, and
    not in a call within that call. There may be 256 of them."""

    def __init__(self, asking: Asking, left: list[int], told: Callable[[int | BrokerError], None]) -> None:
        self._asking = asking
        self._left = left
        self._told = told
        self._goes_on = False
        """`go_on` is under way."""
        self._asks = True
        """The next one is to be asked."""

    def go_on(self) -> None:
        self._goes_on = True
        while self._asks:
            self._asks = False
            self._asking.ask(self._left.pop(), NewProducer(), self._answered)
        self._goes_on = False

    def _answered(self, answer: object) -> None:
        if isinstance(answer, ProducerFound):
            self._told(answer.producer_id)
        elif not self._left:
            self._told(BrokerError(Fault.COORDINATOR_LOAD_IN_PROGRESS))  # see api_22_init_producer_id
        else:
            self._asks = True
            if not self._goes_on:
                self.go_on()
