"""What the Kafka adapter uses as its kernel in a process that has several shards.

Topics are those of the shared catalog. Where a partition lies in a shard of this process, the very partition of that
shard stands in its topic's list, so that reading and waiting cost what they cost with one log: one look more, at which
kernel a partition belongs to. What is appended goes through the shards' own kernels (adapters/kafka/shard_routing.py).
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import structs

from halfmoon.cluster.changes import Changes
from halfmoon.cluster.placement import Layout, is_aligned
from halfmoon.cluster.shared import SharedCatalog, tell
from halfmoon.core.catalog.topics import Partition, RemotePartition, Topic
from halfmoon.core.features import Feature, Features, TopicPolicies
from halfmoon.core.hold import HoldService
from halfmoon.core.kernel import Kernel, Shard
from halfmoon.core.topic_administration import TopicAdministration
from halfmoon.errors import BrokerError, Fault
from halfmoon.schema.durability import DURABILITY, FAST, REPLICATION_FACTOR

if TYPE_CHECKING:
    from halfmoon.config.settings import Settings
    from halfmoon.core.append_types import Produced
    from halfmoon.core.clock import Clock
    from halfmoon.core.partition_reader import Search
    from halfmoon.core.storage.files import FileSystem
    from halfmoon.core.storage.storage import Frames, Place, Read
    from halfmoon.core.transactions.aborted import Aborted
    from halfmoon.core.turn import Turn


logger = logging.getLogger("halfmoon.server")


class FrontTurn:
    """Of all shards together."""

    def __init__(self, turns: Sequence[Turn], changes: Changes) -> None:
        """`turns`: as they are at each moment."""
        self._turns = turns
        self._changes = changes

    @property
    def state_position(self) -> int:
        """The version of the shared catalog that answers rest on, those to whoever changes it included."""
        return self._changes.version

    @property
    def dirty(self) -> bool:
        """Something was appended and not written."""
        for turn in self._turns:  # noqa: SIM110 (it is asked for each read of each connection)
            if turn.dirty:
                return True
        return False

    @property
    def durable_position(self) -> int:
        return 0

    def refusal(self) -> BrokerError:
        """Of a log that has failed. None of them is the front's."""
        return BrokerError(Fault.KAFKA_STORAGE_ERROR)


class FrontLog:
    """What stands in a log's place where somebody asks for one: the shared catalog."""

    failed: OSError | None = None
    start = 0

    def __init__(self, shared: SharedCatalog, fs: FileSystem) -> None:
        self._shared = shared
        self.fs = fs

    @property
    def end(self) -> int:
        return self._shared.version


class FrontTopics(TopicAdministration):
    """Of the shared catalog."""

    def __init__(self, layout: Layout, *parts: Any) -> None:
        super().__init__(*parts)
        self._layout = layout
        self._asked: dict[int, BrokerError | None] = {}
        """Topics that are about to be deleted, by their numbers: why a shard needs them, if one does."""

    def create_topic(self, name: str, partitions: int = -1, *given: Any, **more: Any) -> tuple[Topic, int]:
        """An aligned topic has a partition in each shard, unless somebody says otherwise."""
        if partitions == -1 and is_aligned(name):
            partitions = self._layout.shards
        return super().create_topic(name, partitions, *given, **more)

    def alter_configs(self, topic: Topic, configs: Mapping[str, str], *, validate_only: bool = False) -> int:
        """Its partitions are where they are."""
        for name, default in ((DURABILITY, FAST), (REPLICATION_FACTOR, "1")):
            before, after = (each.get(name, default) for each in (topic.configs, configs))
            if before != after:
                raise BrokerError(
                    Fault.INVALID_CONFIG, f"{name} of topic '{topic.name}' is {before}: it is set when it is created"
                )
        return super().alter_configs(topic, configs, validate_only=validate_only)

    def refuse_deletions(self, topics: Iterable[int], refused: Mapping[int, BrokerError]) -> None:
        """Which of these topics the shards need, by their numbers, and why."""
        for gone in [number for number in self._asked if number not in self._catalog.by_number]:
            del self._asked[gone]  # who asked was not allowed to delete it
        self._asked.update((number, refused.get(number)) for number in topics)

    def delete_topic(self, topic: Topic) -> int:
        """The shards were asked before. What came to be since then was not there when its deletion was asked for."""
        if topic.number not in self._asked:
            raise BrokerError(Fault.UNKNOWN_TOPIC_OR_PARTITION, f"topic '{topic.name}' was made a moment ago")
        refused = self._asked.pop(topic.number)
        if refused is not None:
            raise refused
        return super().delete_topic(topic)

    def use(self, features: Sequence[Feature]) -> None:
        """Features have a say in changes. What follows from one follows in each shard."""
        policies = [each.topics for each in features if each.topics is not None]
        self.policies = TopicPolicies(
            [structs.replace(each, deleting=None, deleted=None, configured=None, changed=None) for each in policies]
        )


class Front:
    """See adapters/tcp/core.Core."""

    def __init__(
        self,
        shared: SharedCatalog,
        changes: Changes,
        kernels: Sequence[Kernel],
        shard: Shard,
        layout: Layout,
        clock: Clock,
        random_bytes: Callable[[int], bytes],
    ) -> None:
        """`kernels`: of the shards of this process, of which the first stays; `shard`: what they have in common."""
        self._shared = shared
        self._changes = changes
        self._kernels = list(kernels)
        self._first = first = kernels[0]
        self._identity = shard.identity
        self._live = shard.live
        self.catalog = shared.catalog
        self.topic_configs = self.catalog.topic_configs
        self.owners = shard.owners
        self.hold: HoldService = shard.hold
        self.clock = clock
        self._turns = [kernel.turn for kernel in kernels]
        self.turn = FrontTurn(self._turns, changes)
        self.log = FrontLog(shared, first.fs)
        self.administration = FrontTopics(
            layout, self.catalog, changes, changes, self.hold, self._live, random_bytes
        )  # fmt: skip
        self.administration.use(first.features.all)
        self.fetch_buffers = first.fetch_buffers
        self.refused_batches: Counter[Fault] = Counter()
        self.on_fetched: tuple[Callable[[str, int, int], None], ...] = ()
        self._kernel_of: dict[Partition, Kernel] = {}
        self._missed: dict[Kernel, Collection[int]] = {}
        """Topics whose changes a shard could not be told of."""
        self._of_topic: dict[int, list[Partition]] = {}
        """Topic number → its partitions in `_kernel_of`."""
        self.when_durable = changes.when_durable
        self.when_written = changes.when_durable
        self.adopt(set(self.catalog.by_number))

    # -- topics --------------------------------------------------------------------------------------------------------

    def apply(self, numbers: Collection[int]) -> None:
        """These topics of the shared catalog have changed: the shards are told, and what they have stands here. A shard
        that cannot write now is told with the next call, and the others go on."""
        if not numbers and not self._missed:
            return
        for kernel in self._kernels:
            numbers = self._tell(kernel, numbers)
        self.adopt(numbers)
        self.administration.opened()
        for _ in self.catalog.bury():  # the shards' own are taken apart in slices; here is only a list of them
            pass

    def _tell(self, kernel: Kernel, numbers: Collection[int]) -> Collection[int]:
        """These topics have changed; with them those that the shard could not be told of before."""
        missed = self._missed.pop(kernel, frozenset())
        try:
            for record in tell(self._shared, kernel.catalog, {*numbers, *missed}):
                kernel.administration.follow(record)
        except BrokerError as error:
            self._missed[kernel] = {*numbers, *missed}
            if not missed:
                shard = kernel.catalog.shard
                logger.error("event=shard_not_told shard=%s error=%s", shard and shard.number, error)
            return numbers
        return {*numbers, *missed}

    def add(self, kernel: Kernel) -> None:
        """A shard is this process's from now on; it is open."""
        self._kernels.append(kernel)
        self._turns.append(kernel.turn)
        numbers = {*self.catalog.by_number, *kernel.catalog.by_number}
        self._tell(kernel, numbers)
        self.adopt(numbers)

    def remove(self, kernel: Kernel) -> None:
        """A shard is another process's: who waits for something of it is told so. It is not closed yet, and is not the
        first."""
        assert kernel is not self._first
        if kernel not in self._kernels:
            return
        self._kernels.remove(kernel)
        self._turns.remove(kernel.turn)
        self._missed.pop(kernel, None)
        gone = [partition for partition, owner in self._kernel_of.items() if owner is kernel]
        self.adopt({partition.topic.number for partition in gone})
        for partition in gone:
            topic = self.catalog.by_number.get(partition.topic.number)
            if topic is not None and topic.partitions[partition.index] is partition:
                _lies_elsewhere(partition, topic)
            self.hold.wake_partition(partition)

    def adopt(self, numbers: Collection[int]) -> None:
        """Have the shards' own partitions stand in these topics."""
        for number in numbers:
            for partition in self._of_topic.pop(number, ()):
                del self._kernel_of[partition]
            topic = self.catalog.by_number.get(number)
            if topic is None:
                continue
            found = self._of_topic[number] = []
            for kernel in self._kernels:
                known = kernel.catalog.by_number.get(number)
                if known is None:  # made while this process was down: the shard is told next
                    continue
                for partition in known.here():
                    topic.partitions[partition.index] = partition
                    self._kernel_of[partition] = kernel
                    found.append(partition)
            for partition in topic.partitions:
                if partition not in self._kernel_of and not partition.is_remote():
                    _lies_elsewhere(partition, topic)

    def find_kernel(self, partition: Partition) -> Kernel | None:
        """The kernel of the shard that a partition lies in, if that is one of this process's."""
        return self._kernel_of.get(partition)

    def kernel_of(self, partition: Partition) -> Kernel:
        """The kernel of the shard that a partition lies in. Raises BrokerError(NOT_LEADER_OR_FOLLOWER)."""
        kernel = self._kernel_of.get(partition)
        if kernel is None:
            raise BrokerError(Fault.NOT_LEADER_OR_FOLLOWER)
        return kernel

    @property
    def features(self) -> Features:
        """What they have a say in is the same in all shards."""
        return self._first.features

    def shard_of(self, topic: Topic, index: int) -> int:
        """−1 where nobody knows the partition."""
        return self._shared.shard_of(topic.number, index)

    # -- what a node is ------------------------------------------------------------------------------------------------

    @property
    def settings(self) -> Settings:
        return self._live.current

    @property
    def node_id(self) -> int:
        return self._identity.node_id

    @property
    def cluster_id(self) -> str:
        return self._identity.cluster_id

    @property
    def generation(self) -> int:
        """Partitions have epochs of their own: `owners` tells."""
        return -1

    @property
    def is_changing(self) -> bool:
        """A change of the shared catalog is under way."""
        return self._changes.is_open

    # -- partitions ----------------------------------------------------------------------------------------------------

    def read(self, partition: Partition, offset: int, max_bytes: int, **more: Any) -> Read:
        return self.kernel_of(partition).read(partition, offset, max_bytes, **more)

    def places(self, partition: Partition, offset: int, max_bytes: int, **more: Any) -> Sequence[Place]:
        return self.kernel_of(partition).places(partition, offset, max_bytes, **more)

    def read_at(self, partition: Partition, places: Sequence[Place]) -> Read:
        """What stands at places of the log that the partition lies in."""
        return self.kernel_of(partition).read_at(places)

    def read_framed(self, partition: Partition, offset: int, max_bytes: int) -> tuple[list[Place], Read]:
        return self.kernel_of(partition).read_framed(partition, offset, max_bytes)

    def bytes_available(self, partition: Partition, offset: int, enough: int, *, committed: bool = False) -> int:
        kernel = self._kernel_of.get(partition)
        return 0 if kernel is None else kernel.bytes_available(partition, offset, enough, committed=committed)

    def aborted_in(self, partition: Partition, offset: int, size: int) -> Sequence[Aborted]:
        return self.kernel_of(partition).aborted_in(partition, offset, size)

    def batch_for_time(self, partition: Partition, timestamp_ms: int) -> Search | None:
        return self.kernel_of(partition).batch_for_time(partition, timestamp_ms)

    def max_timestamp(self, partition: Partition) -> Search | None:
        return self.kernel_of(partition).max_timestamp(partition)

    def frames(self) -> Frames:
        raise NotImplementedError("each shard has its own")

    # -- writing -------------------------------------------------------------------------------------------------------

    def on_handled(self) -> None:
        """See Kernel.on_handled."""
        for kernel in self._kernels:
            if kernel.turn.dirty:
                kernel.on_handled()

    def write(self) -> None:
        for kernel in self._kernels:
            kernel.write()

    def after_write(self, callback: Callable[[], None]) -> None:
        """Call back once all buffers that have been appended by then are free, in all shards: as of one log, whose
        write is one of all. Each shard writes when its own turn ends, so the others are written here."""
        left = len(self._kernels)

        def written() -> None:
            nonlocal left
            left -= 1
            if not left:
                for kernel in self._kernels:
                    if kernel.turn.dirty:
                        kernel.write()
                callback()

        for kernel in self._kernels:
            kernel.after_write(written)

    def append(self, *_given: object, **_more: object) -> Produced:
        raise NotImplementedError("batches are appended in the shards")

    def allocate_producer_id(self) -> tuple[int, int]:
        raise NotImplementedError("producers get their ids from the shards")


def _lies_elsewhere(partition: Partition, topic: Topic) -> None:
    """No shard of this process has it. It keeps its number, which shards are told, and ids of messages have."""
    topic.partitions[partition.index] = remote = RemotePartition(topic, partition.index)
    remote.queue_number = partition.queue_number
