"""Groups' progress as RocketMQ's clients report it (B14, B18): in every pull, and every five seconds.

That may be thousands of times a second, so it is noted here and written down, in the table that all protocols share,
once a second and whenever somebody wants to know. What is lost in a crash is consumed again, as with RocketMQ, which
writes it every five seconds (org.apache.rocketmq.broker.offset.ConsumerOffsetManager).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from halfmoon.adapters.rocketmq.shards import Offsets, Place
from halfmoon.adapters.tcp.core import Core
from halfmoon.core.catalog.catalog import Catalog
from halfmoon.core.catalog.topics import Partition
from halfmoon.errors import BrokerError
from halfmoon.services.groups.service import GroupService

log = logging.getLogger("halfmoon.rocketmq")

WRITE_EVERY_S = 1.0

Told = Callable[[BrokerError | None], None]
Found = Callable[[Sequence[int | None] | BrokerError], None]
"""Told of each queue that was asked about: None where the group has never said."""


class AnyProgress(Protocol):
    """Of all groups, wherever it is kept: here, or at the shards that coordinate them (shard_progress.py)."""

    def note(self, group: str, partition: Partition, offset: int) -> None:
        """The group has consumed what is below `offset`. It does not count where it is Kafka's members that consume."""
        ...

    def write(self, group: str | None = None) -> None:
        """Write down what was noted: of one group, or of all."""
        ...

    def stop(self) -> None:
        """Write it down for the last time."""
        ...

    def commit(self, group: str, told: Told) -> None:
        """The same, for who waits until it is durable."""
        ...

    def set(self, group: str, entries: Sequence[tuple[Partition, int]], told: Told) -> None:
        """Set progress from outside; told when that is durable."""
        ...

    def find(self, group: str, partitions: Sequence[Partition], told: Found) -> None:
        """Up to where the group has consumed."""
        ...

    def all(self, group: str, told: Callable[[Offsets | BrokerError], None]) -> None:
        """The same of all queues that it has said anything of."""
        ...


class Progress:
    """Of a broker that is one process."""

    def __init__(self, core: Core, groups: GroupService, later: Callable[[float, Callable[[], None]], object]) -> None:
        """`later(seconds, callback)` calls back once."""
        self._core = core
        self._groups = groups
        self._later = later
        self._noted: dict[str, dict[Partition, int]] = {}
        self._is_due = False

    def note(self, group: str, partition: Partition, offset: int) -> None:
        """The group has consumed what is below `offset`. It does not count where it is Kafka's members that consume."""
        if self._groups.coordinator.is_active(group):
            return
        self._noted.setdefault(group, {})[partition] = offset
        if not self._is_due:
            self._is_due = True
            self._later(WRITE_EVERY_S, self._due)

    def _due(self) -> None:
        self._is_due = False
        self.write()

    def write(self, group: str | None = None) -> None:
        """Write down what was noted: of one group, or of all."""
        for each in [group] if group is not None else list(self._noted):
            try:
                self.write_or_refuse(each)
            except BrokerError as error:
                log.error("event=offsets_not_written group=%s error=%s", each, error)

    def stop(self) -> None:
        self.write()

    def write_or_refuse(self, group: str) -> None:
        """The same, for who waits for it. Raises BrokerError."""
        noted = self._noted.pop(group, {})
        catalog = self._core.catalog
        record_changed(self._groups, group, [each for each in noted.items() if exists(catalog, each[0])])

    def commit(self, group: str, told: Told) -> None:
        """Raises BrokerError."""
        self.write_or_refuse(group)
        self._core.when_durable(self._core.turn.state_position, told)

    def set(self, group: str, entries: Sequence[tuple[Partition, int]], told: Told) -> None:
        """Raises BrokerError."""
        position = 0
        for partition, offset in entries:
            self._noted.get(group, {}).pop(partition, None)
            position = self._groups.record(group, [(partition, offset, -1, "")], reset=True)
        self._core.when_durable(position, told)

    def find(self, group: str, partitions: Sequence[Partition], told: Found) -> None:
        told([self._offset(group, each) for each in partitions])

    def all(self, group: str, told: Callable[[Offsets | BrokerError], None]) -> None:
        self.write(group)
        told({place: each.offset for place, each in self._groups.all_offsets.get(group, {}).items()})

    def _offset(self, group: str, partition: Partition) -> int | None:
        noted = self._noted.get(group, {}).get(partition)
        if noted is not None:
            return noted
        committed = self._groups.all_offsets.get(group, {}).get(place_of(partition))
        return None if committed is None else committed.offset


def place_of(partition: Partition) -> Place:
    return partition.topic.number, partition.index


def exists(catalog: Catalog, partition: Partition) -> bool:
    """Whether it was not deleted."""
    return catalog.partition(*place_of(partition)) is partition


def with_offsets(groups: GroupService, topic: int) -> list[str]:
    """The groups that have committed offsets in a topic."""
    return [group for group, offsets in groups.all_offsets.items() if any(number == topic for number, _ in offsets)]


def record_changed(groups: GroupService, group: str, offsets: Iterable[tuple[Partition, int]]) -> None:
    """Record those of these offsets that are not what is committed. Raises BrokerError."""
    known = groups.all_offsets.get(group, {})
    entries = []
    for partition, offset in offsets:
        committed = known.get(place_of(partition))
        if committed is None or committed.offset != offset:
            entries.append((partition, offset, -1, ""))
    if entries:
        groups.record(group, entries, reset=False)
