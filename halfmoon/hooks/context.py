"""What a plugin is handed: its settings, its logger, its directory, and the broker once that runs."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeVar

from msgspec import Struct

SettingsT = TypeVar("SettingsT", bound=Struct)


class PluginHost(Protocol):
    """What the running broker does for plugins; the composition root supplies it (`Plugins.attach`)."""

    def append(self, topic: str, partition: int, batch: bytes) -> int:
        """Append a record batch; the base offset. Raises BrokerError. Call it in the loop's thread."""
        ...

    def read(self, topic: str, partition: int, queue_offset: int, max_bytes: int) -> Sequence[memoryview | bytes]:
        """Whole batches from `queue_offset` on, up to the stable offset. Where they are not in memory, it waits for
        them, and every client with it. Raises BrokerError, OSError."""
        ...

    async def read_async(
        self, topic: str, partition: int, queue_offset: int, max_bytes: int
    ) -> Sequence[memoryview | bytes]:
        """As `read`, for a coroutine in the loop: where they are not here yet, only the coroutine waits. Raises
        BrokerError, also where the topic is deleted meanwhile, OSError."""
        ...

    def create_topic(self, topic: str, configs: Mapping[str, str], partitions: int) -> None:
        """As Kafka's CreateTopics; −1 partitions: the default, or the source's where it is a view. Raises
        BrokerError."""
        ...

    def topic_configs(self, topic: str) -> Mapping[str, str] | None:
        """What the topic itself says of its configurations; None where there is no such topic."""
        ...

    def group_configs(self, group: str) -> Mapping[str, str]:
        """What the group itself says of its configurations, whether it exists or not. It is not the caller's to
        change."""
        ...

    def topics(self) -> Sequence[str]:
        """The names of all topics, internal ones included, sorted."""
        ...

    def partitions(self, topic: str) -> int:
        """How many partitions it has; 0 where there is no such topic."""
        ...

    def offsets(self, topic: str, partition: int) -> tuple[int, int]:
        """The first offset that may be read, and the one behind the last that may. Raises BrokerError."""
        ...

    def check_view(self, configs: Mapping[str, str]) -> None:
        """Raises BrokerError(INVALID_CONFIG) where no view could be defined so, whatever topics there are."""
        ...

    def catch_up(self, topic: str) -> None:
        """Call `begin` of this internal topic's relay with all scheduled messages that are on disk."""
        ...

    def is_scheduled(self, topic: str, partition: int, offset: int) -> bool:
        """Whether a scheduled message was appended there that is not completed yet. It may not be durable yet."""
        ...

    def was_nacked(self, group: str, topic: str, partition: int, offset: int) -> bool:
        """Whether the group has negatively acknowledged this message, and not committed its offset since."""
        ...

    def allows(self, principal: str, host: str, operation: str, resource_type: str, name: str) -> bool:
        """Whether a client that is not here may do something, by what the broker knows of it now: for what is done on
        its behalf later. Words as of `halfmoon_authorize`. Raises BrokerError(NOT_LEADER_OR_FOLLOWER) where that cannot
        be told now."""
        ...

    def cache_verdicts(self, plugin: str, lifetime_ms: int) -> None:
        """Keep what `halfmoon_authorize` of the plugin says of a principal, an address and a resource for so long; 0
        keeps nothing. Raises ValueError for less. Without access rules nothing is kept."""
        ...

    def invalidate_verdicts(self) -> None:
        """Forget what is kept of it: the next request asks anew."""
        ...

    def count(self, plugin: str, name: str, amount: int) -> None:
        """Add to the counter `halfmoon_plugin_total{plugin=…, name=…}`."""
        ...

    def state_dir(self, plugin: str) -> Path:
        """A directory that is the plugin's alone, made if need be, inside the data directory."""
        ...


class PluginContext:
    """One plugin's view of the broker; every plugin has its own.

    `name`, `settings`, `sections`, `memory` and `logger` are there from the start. All the others need the running
    broker: they may be called from `halfmoon_started` on, and raise RuntimeError before, or where there is no broker
    at all (an allocator used by `halfmoon.kafka.assignor` in a client).
    """

    __slots__ = ("_host", "logger", "memory", "name", "sections", "settings")

    def __init__(
        self,
        name: str,
        settings: Struct | None = None,
        host: PluginHost | None = None,
        sections: Mapping[str, Any] | None = None,
    ) -> None:
        self.name = name
        self.settings: Any = settings
        """The plugin's section, of the type its `halfmoon_config` gave; None without one."""
        self.sections: Mapping[str, Any] = sections or {}
        """The top-level sections that its `halfmoon_config` claimed and broker.yaml has, by name."""
        self.memory: Any = None
        """The plugin's own: what its hooks share."""
        self.logger = logging.getLogger(f"halfmoon.plugin.{name}")
        self._host = host

    def attach(self, host: PluginHost) -> None:
        """The broker's call, once it runs."""
        self._host = host

    def settings_as(self, section: type[SettingsT]) -> SettingsT:
        """The settings with their type; a TypeError says that `halfmoon_config` gave another one."""
        if not isinstance(self.settings, section):
            raise TypeError(f"{self.name}: settings are {type(self.settings).__name__}, not {section.__name__}")
        return self.settings

    def append(self, topic: str, partition: int, batch: bytes) -> int:
        """See PluginHost.append."""
        return self._running().append(topic, partition, batch)

    def read(self, topic: str, partition: int, queue_offset: int, max_bytes: int) -> Sequence[memoryview | bytes]:
        """See PluginHost.read."""
        return self._running().read(topic, partition, queue_offset, max_bytes)

    async def read_async(
        self, topic: str, partition: int, queue_offset: int, max_bytes: int
    ) -> Sequence[memoryview | bytes]:
        """See PluginHost.read_async."""
        return await self._running().read_async(topic, partition, queue_offset, max_bytes)

    def create_topic(self, topic: str, configs: Mapping[str, str], partitions: int = -1) -> None:
        """See PluginHost.create_topic."""
        self._running().create_topic(topic, configs, partitions)

    def topic_configs(self, topic: str) -> Mapping[str, str] | None:
        """See PluginHost.topic_configs."""
        return self._running().topic_configs(topic)

    def group_configs(self, group: str) -> Mapping[str, str]:
        """See PluginHost.group_configs."""
        return self._running().group_configs(group)

    def topics(self) -> Sequence[str]:
        """See PluginHost.topics."""
        return self._running().topics()

    def partitions(self, topic: str) -> int:
        """See PluginHost.partitions."""
        return self._running().partitions(topic)

    def offsets(self, topic: str, partition: int) -> tuple[int, int]:
        """See PluginHost.offsets."""
        return self._running().offsets(topic, partition)

    def check_view(self, configs: Mapping[str, str]) -> None:
        """See PluginHost.check_view."""
        self._running().check_view(configs)

    def catch_up(self, topic: str) -> None:
        """See PluginHost.catch_up."""
        self._running().catch_up(topic)

    def is_scheduled(self, topic: str, partition: int, offset: int) -> bool:
        """See PluginHost.is_scheduled."""
        return self._running().is_scheduled(topic, partition, offset)

    def was_nacked(self, group: str, topic: str, partition: int, offset: int) -> bool:
        """See PluginHost.was_nacked."""
        return self._running().was_nacked(group, topic, partition, offset)

    def is_waiting(self, topic: str, partition: int, offset: int) -> bool:
        """Deprecated: `is_scheduled`. Goes with the next version."""
        warnings.warn("PluginContext.is_waiting is called is_scheduled now", DeprecationWarning, stacklevel=2)
        return self.is_scheduled(topic, partition, offset)

    def was_handed_back(self, group: str, topic: str, partition: int, offset: int) -> bool:
        """Deprecated: `was_nacked`. Goes with the next version."""
        warnings.warn("PluginContext.was_handed_back is called was_nacked now", DeprecationWarning, stacklevel=2)
        return self.was_nacked(group, topic, partition, offset)

    def allows(self, principal: str, host: str, operation: str, resource_type: str, name: str) -> bool:
        """See PluginHost.allows."""
        return self._running().allows(principal, host, operation, resource_type, name)

    def cache_verdicts(self, lifetime_ms: int) -> None:
        """See PluginHost.cache_verdicts."""
        self._running().cache_verdicts(self.name, lifetime_ms)

    def invalidate_verdicts(self) -> None:
        """See PluginHost.invalidate_verdicts."""
        self._running().invalidate_verdicts()

    def count(self, name: str, amount: int = 1) -> None:
        """Add to one of the plugin's counters in /metrics."""
        self._running().count(self.name, name, amount)

    @property
    def state_dir(self) -> Path:
        """A directory of the plugin's own. What stands in it must be derivable from the log, or be worth losing."""
        return self._running().state_dir(self.name)

    def _running(self) -> PluginHost:
        if self._host is None:
            raise RuntimeError(f"plugin {self.name}: there is no running broker yet; use halfmoon_started")
        return self._host
