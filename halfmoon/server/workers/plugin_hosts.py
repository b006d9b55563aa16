"""What the broker does for plugins in a process that has several shards (hooks/context.PluginHost).

A plugin has a context in each shard, for its hooks about messages, and one for all the others. A shard's is as that of
a broker of one process, but that topics are made for all. The process's asks the shard that something lies in.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from halfmoon.cluster.placement import Layout
from halfmoon.core.catalog.topics import Partition
from halfmoon.errors import BrokerError, Fault
from halfmoon.server.plugin_host import Batches, Host

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from halfmoon.server.assembly import Node
    from halfmoon.server.workers.front import Front
    from halfmoon.server.workers.wanted import WantedTopics


class ShardHost(Host):
    def __init__(
        self,
        node: Node,
        data_dir: Path,
        wanted: WantedTopics,
        counts: Counter[tuple[str, str]],
        threads: Executor,
    ) -> None:
        """`counts`: of all shards of the process together. `threads`: where plugins read."""
        super().__init__(node, data_dir, threads)
        self._wanted = wanted
        self.counts = counts

    def create_topic(self, topic: str, configs: Mapping[str, str], partitions: int) -> None:
        """The topic is there a moment later, in all processes."""
        if self._kernel.catalog.topic(topic) is not None:
            raise BrokerError(Fault.TOPIC_ALREADY_EXISTS, f"topic '{topic}' exists")
        self._wanted.make(topic, partitions, configs)

    def _partition(self, topic: str, index: int) -> Partition:
        found = super()._partition(topic, index)
        if self._kernel.owners.owner_of(found) != self._kernel.node_id or found not in found.topic.here():
            raise BrokerError(Fault.NOT_LEADER_OR_FOLLOWER, f"{found!r} is located in another shard")
        return found


class FrontHost(Host):
    """Of the process."""

    def __init__(self, front: Front, hosts: Mapping[int, ShardHost], layout: Layout, data_dir: Path) -> None:
        """`hosts`: by shard, as they are at each moment; the first stays."""
        first = next(iter(hosts.values()))
        super().__init__(first.node, data_dir)
        self._front = front
        self._hosts = hosts
        self._layout = layout
        self._first = first
        self.counts = first.counts

    def _host_of(self, topic: str, index: int) -> Host:
        """Raises BrokerError."""
        found = self._front.catalog.topic(topic)
        if found is None or not 0 <= index < len(found.partitions):
            raise BrokerError(Fault.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {index} of topic '{topic}'")
        kernel = self._front.kernel_of(found.partitions[index])
        assert kernel.catalog.shard is not None
        return self._hosts[kernel.catalog.shard.number]

    def append(self, topic: str, partition: int, batch: bytes) -> int:
        return self._host_of(topic, partition).append(topic, partition, batch)

    def read(self, topic: str, partition: int, queue_offset: int, max_bytes: int) -> Batches:
        return self._host_of(topic, partition).read(topic, partition, queue_offset, max_bytes)

    async def read_async(self, topic: str, partition: int, queue_offset: int, max_bytes: int) -> Batches:
        return await self._host_of(topic, partition).read_async(topic, partition, queue_offset, max_bytes)

    def create_topic(self, topic: str, configs: Mapping[str, str], partitions: int) -> None:
        """At once where a change of the catalog is under way, as when plugins are told that the broker runs; else a
        moment later."""
        if self._front.is_changing:
            self._front.administration.create_topic(topic, partitions, configs)
        else:
            self._first.create_topic(topic, configs, partitions)

    def topic_configs(self, topic: str) -> Mapping[str, str] | None:
        found = self._front.catalog.topic(topic)
        return None if found is None else dict(found.configs)

    def topics(self) -> Sequence[str]:
        return [topic.name for topic in self._front.catalog.topics()]

    def partitions(self, topic: str) -> int:
        found = self._front.catalog.topic(topic)
        return 0 if found is None else len(found.partitions)

    def offsets(self, topic: str, partition: int) -> tuple[int, int]:
        return self._host_of(topic, partition).offsets(topic, partition)

    def catch_up(self, topic: str) -> None:
        for host in self._hosts.values():
            host.catch_up(topic)

    def is_scheduled(self, topic: str, partition: int, offset: int) -> bool:
        return any(host.is_scheduled(topic, partition, offset) for host in self._hosts.values())

    def was_nacked(self, group: str, topic: str, partition: int, offset: int) -> bool:
        host = self._hosts.get(self._layout.coordinator_of(group))
        return host is not None and host.was_nacked(group, topic, partition, offset)

    def invalidate_verdicts(self) -> None:
        if self.authorization is not None:
            self.authorization.forget()
        for host in self._hosts.values():
            host.node.groups.rights_changed()
