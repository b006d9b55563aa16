"""What the server of one shard does for the others (shards.py has their side): it keeps the progress of the groups that
it coordinates and knows who consumes for them, and its queues take batches and say how they stand.

Each can be asked twice without harm, but for `append`. A topic that this shard has not heard of yet is a reason to ask
again: COORDINATOR_LOAD_IN_PROGRESS, and nothing was done.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from halfmoon.adapters.rocketmq.groups import speaks_kafka
from halfmoon.adapters.rocketmq.node import Node
from halfmoon.adapters.rocketmq.progress import record_changed, with_offsets
from halfmoon.adapters.rocketmq.request.req_202_get_topic_stats_info import last_ms
from halfmoon.adapters.rocketmq.sending import place
from halfmoon.adapters.rocketmq.shards import Place, QueueEnd, Stored
from halfmoon.adapters.tcp.access import Rights
from halfmoon.adapters.tcp.appending import append_late
from halfmoon.adapters.tcp.steps import InThread, Soon, run_steps
from halfmoon.core.append_types import Produced
from halfmoon.core.catalog.topics import Partition
from halfmoon.errors import BrokerError, Fault
from halfmoon.services.groups.service import GroupService

RightsOf = Callable[[str, str], Rights | None]
"""(principal, host) → what this client of another shard may do; None: everything. Raises BrokerError."""
Rows = Iterable[tuple[int, int, int]]
"""Topic number, partition, offset."""


class Coordinating:
    """Of one shard."""

    def __init__(self, node: Node, in_thread: InThread, soon: Soon, rights: RightsOf) -> None:
        self._node = node
        self._catalog = node.core.catalog
        self._groups = node.services.get(GroupService)
        self._in_thread = in_thread
        self._soon = soon
        self._rights = rights

    @property
    def position(self) -> int:
        """Of the log: what an answer of how something is rests on is before it."""
        return self._node.core.turn.state_position

    # -- groups --------------------------------------------------------------------------------------------------------

    def commit(self, group: str, offsets: Rows, *, reset: bool) -> int:
        """Commit what consumers have consumed; the log position to wait for. Raises BrokerError."""
        self._check_protocol(group)
        entries = list(self._partitions(offsets))
        if reset and entries:
            return self._groups.record(group, [(each, offset, -1, "") for each, offset in entries], reset=True)
        record_changed(self._groups, group, entries)
        return self.position

    def committed(self, group: str, places: Sequence[Place] | None) -> list[tuple[int, int, int]]:
        offsets = self._groups.committed(group)
        wanted = offsets if places is None else places
        found = [(each, offsets[each].offset) for each in wanted if each in offsets]
        return [(number, index, offset) for (number, index), offset in found]

    def consumer_seen(self, group: str, client_id: str, host: str, shard: int) -> None:
        """Raises BrokerError(INCONSISTENT_GROUP_PROTOCOL)."""
        self._check_protocol(group)
        self._node.elsewhere.seen(group, client_id, host, shard)

    def consumer_left(self, group: str, client_id: str, shard: int) -> None:
        self._node.elsewhere.left(group, client_id, shard)

    def in_order(self, group: str, shard: int, *, holds_locks: bool) -> None:
        lasts_ms = self._node.settings.queue_lock_ms if holds_locks else 0
        self._node.elsewhere.holds_locks(group, shard, self._node.core.clock.mono_ms() + lasts_ms)

    # -- producers -----------------------------------------------------------------------------------------------------

    def producers_seen(self, group: str, shard: int) -> None:
        self._node.producers_elsewhere.seen(group, shard)
        self._node.checks.follow(group)

    def ask_producers(self, group: str, messages: bytes, broker: str) -> bool:
        return self._node.checks.ask(group, messages, broker)

    def consuming(self, topic: int) -> list[str]:
        self._node.progress.write()
        return with_offsets(self._groups, topic)

    def _check_protocol(self, group: str) -> None:
        if self._groups.coordinator.is_active(group):
            raise BrokerError(Fault.INCONSISTENT_GROUP_PROTOCOL, speaks_kafka(group))

    def _partitions(self, offsets: Rows) -> Iterator[tuple[Partition, int]]:
        """Wherever they lie; without those of topics that are gone."""
        for number, index, offset in offsets:
            topic = self._catalog.by_number.get(number)
            if topic is None:
                if number < self._catalog.next_topic_number:
                    continue
                raise _not_yet()
            if index >= len(topic.partitions):
                raise _not_yet()
            yield topic.partitions[index], offset

    # -- queues --------------------------------------------------------------------------------------------------------

    def append(
        self,
        number: int,
        index: int,
        batch: bytes,
        told: Callable[[Stored | BrokerError], None],
        sender: tuple[str, str] | None = None,
    ) -> None:
        """Append a batch to a partition of this shard; told when it is durable. `sender`: as of shards.Messages. Raises
        BrokerError."""
        rights = None if sender is None else self._rights(*sender)
        partition, core = self._here(number, index), self._node.core

        def appended(produced: Produced) -> None:
            queue, offset, due_ms = place(partition, produced)
            stored = Stored(queue.queue_number, offset, due_ms)
            core.when_durable(produced.position, lambda error: told(stored if error is None else error))

        def failed(error: Exception) -> None:
            if not isinstance(error, BrokerError):
                error = BrokerError(Fault.KAFKA_STORAGE_ERROR, f"the batch could not be appended: {error}")
            told(error)

        steps = append_late(core, partition, memoryview(bytearray(batch)), rights)
        run_steps(steps, self._in_thread, appended, failed, self._soon)

    def ends(self, offsets: Rows) -> list[QueueEnd]:
        """How partitions of this shard stand, without those that are gone. Raises BrokerError."""
        found = []
        for partition, offset in self._partitions(offsets):
            if self._node.queues.id_of(partition) >= 0:
                last = last_ms(partition, offset)
                found.append((partition.topic.number, partition.index, partition.stable_offset, last))
        return found

    def _here(self, number: int, index: int) -> Partition:
        found = [each for each, _ in self._partitions([(number, index, 0)])]
        if not found:
            raise BrokerError(Fault.UNKNOWN_TOPIC_OR_PARTITION)
        if self._node.queues.id_of(found[0]) < 0:
            raise BrokerError(Fault.NOT_LEADER_OR_FOLLOWER)
        return found[0]


def _not_yet() -> BrokerError:
    return BrokerError(Fault.COORDINATOR_LOAD_IN_PROGRESS, "the shard has not heard of the topic yet; ask again")
