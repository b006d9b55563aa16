"""What the running broker does for plugins (hooks/context.PluginHost)."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from halfmoon.core.catalog.topics import Partition
from halfmoon.core.records.batch_header import parse_header
from halfmoon.core.steps import Steps, finish
from halfmoon.core.storage.files import DIRECTORY_MODE
from halfmoon.core.transactions.aborted import AbortedBatches
from halfmoon.errors import BrokerError, Fault, NotHereYetError, TakesLongError
from halfmoon.hooks.features import ViewChecks
from halfmoon.server.assembly import Node
from halfmoon.services.authorization.service import Authorization
from halfmoon.services.following.saved import folder_of

if TYPE_CHECKING:
    from halfmoon.adapters.tcp.access import Rights

Batches = Sequence[memoryview | bytes]
RightsOf = Callable[[str, str], "Rights | None"]
"""(principal, client's address) → what it may do."""


def _not_known(_principal: str, _host: str) -> Rights | None:
    raise BrokerError(Fault.NOT_LEADER_OR_FOLLOWER, "it is not known yet who may do what")


class Host:
    """One for all plugins. Everything is called in the loop's thread."""

    def __init__(self, node: Node, data_dir: str | Path, threads: Executor | None = None) -> None:
        """`threads`: where `read_async` waits; None takes the loop's own."""
        self.node = node
        self._threads = threads
        self._kernel = node.kernel
        self._data_dir = Path(data_dir).absolute()
        self.counts: Counter[tuple[str, str]] = Counter()
        """(plugin, name of the counter) → its value."""
        self.lifetimes_ms: dict[str, int] = {}
        """How long verdicts of a plugin may be kept."""
        self.authorization: Authorization | None = None
        """Once there is one: where access rules decide."""
        self.rights: RightsOf = _not_known
        """What a client may do; None: everything. Raises BrokerError."""

    def append(self, topic: str, partition: int, batch: bytes) -> int:
        """The base offset. The batch is appended, not yet durable. Raises BrokerError."""
        target = self._partition(topic, partition)
        records = memoryview(bytearray(batch))
        prepared: object = None
        while True:
            try:
                now_ms = self._kernel.clock.wall_ms()
                return self._kernel.append(target, records, now_ms, prepared=prepared).base_offset
            except NotHereYetError as error:  # it ends half messages that are not in memory: whoever calls this waits
                error.load()
            except TakesLongError as error:
                prepared = finish(error.steps(records))

    def read(self, topic: str, partition: int, queue_offset: int, max_bytes: int) -> Batches:
        """Whole batches, the first whatever its size; without those of aborted transactions, and up to the last stable
        offset. Waits where they are not in memory, and every client with it.

        Do not keep the slices: they pin the log's segment. Raises BrokerError, OSError.
        """
        return finish(self._read(topic, partition, queue_offset, max_bytes))

    async def read_async(self, topic: str, partition: int, queue_offset: int, max_bytes: int) -> Batches:
        """As `read`, but nobody waits beside the caller."""
        steps = self._read(topic, partition, queue_offset, max_bytes)
        value: Any = None
        while True:
            try:
                load = steps.send(value)
            except StopIteration as done:
                return cast(Batches, done.value)
            value = await asyncio.get_running_loop().run_in_executor(self._threads, load)

    def _read(self, topic: str, partition: int, queue_offset: int, max_bytes: int) -> Steps[Batches]:
        while True:
            where = self._partition(topic, partition)
            read = self._kernel.read(where, queue_offset, max_bytes, min_one=True, committed=True)
            aborted = AbortedBatches(self._kernel.aborted_in(where, queue_offset, read.size))
            batches = read.slices if read.cold is None else (yield read.cold)
            headers = [parse_header(batch) for batch in batches]
            kept = [batch for batch, header in zip(batches, headers, strict=True) if not aborted.hide(header)]
            if kept or not batches:
                return kept
            queue_offset = headers[-1].base_offset + headers[-1].last_offset_delta + 1

    def create_topic(self, topic: str, configs: Mapping[str, str], partitions: int) -> None:
        """The topic is there at once, and durable a moment later. Raises BrokerError."""
        self._kernel.administration.create_topic(topic, partitions, configs)

    def topic_configs(self, topic: str) -> Mapping[str, str] | None:
        found = self._kernel.catalog.topic(topic)
        return None if found is None else dict(found.configs)

    def group_configs(self, group: str) -> Mapping[str, str]:
        return self.node.group_configs.overrides(group)

    def topics(self) -> Sequence[str]:
        return [topic.name for topic in self._kernel.catalog.topics()]

    def partitions(self, topic: str) -> int:
        found = self._kernel.catalog.topic(topic)
        return 0 if found is None else len(found.partitions)

    def offsets(self, topic: str, partition: int) -> tuple[int, int]:
        """The end is the high watermark."""
        found = self._partition(topic, partition)
        return found.start_offset, found.high_watermark

    def check_view(self, configs: Mapping[str, str]) -> None:
        """Raises BrokerError(INVALID_CONFIG)."""
        views = self.node.services.find(ViewChecks)
        if views is None:
            raise BrokerError(Fault.INVALID_CONFIG, "view is off, so nobody can define a view")
        views.check(configs)

    def catch_up(self, topic: str) -> None:
        found = self._kernel.catalog.topic(topic)
        if found is not None:
            self.node.waiting.catch_up(found)

    def is_scheduled(self, topic: str, partition: int, offset: int) -> bool:
        found = self._kernel.catalog.topic(topic)
        if found is None or not 0 <= partition < len(found.partitions):
            return False
        return self.node.waiting.is_waiting(found.partitions[partition], offset)

    def was_nacked(self, group: str, topic: str, partition: int, offset: int) -> bool:
        found = self._kernel.catalog.topic(topic)
        if found is None or not 0 <= partition < len(found.partitions):
            return False
        return self.node.state.nacked.was_nacked(group, found.partitions[partition], offset)

    def allows(self, principal: str, host: str, operation: str, resource_type: str, name: str) -> bool:
        rights = self.rights(principal, host)
        return rights is None or rights.allows((operation, resource_type, name))

    def cache_verdicts(self, plugin: str, lifetime_ms: int) -> None:
        if lifetime_ms < 0:
            raise ValueError(f"verdicts cannot be kept for {lifetime_ms} ms")
        self.lifetimes_ms[plugin] = lifetime_ms
        if self.authorization is not None:
            self.authorization.keep(plugin, lifetime_ms)

    def invalidate_verdicts(self) -> None:
        if self.authorization is not None:
            self.authorization.forget()
        self.node.groups.rights_changed()  # patterns found topics by them

    def count(self, plugin: str, name: str, amount: int) -> None:
        self.counts[plugin, name] += amount

    def state_dir(self, plugin: str) -> Path:
        """Made if need be. Names are escaped, so that none leads out of the folder or into another plugin's."""
        folder = self._data_dir / folder_of(plugin)
        folder.mkdir(DIRECTORY_MODE, parents=True, exist_ok=True)
        return folder

    def _partition(self, topic: str, index: int) -> Partition:
        found = self._kernel.catalog.topic(topic)
        if found is None or not 0 <= index < len(found.partitions):
            raise BrokerError(Fault.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {index} of topic '{topic}'")
        return found.partitions[index]
