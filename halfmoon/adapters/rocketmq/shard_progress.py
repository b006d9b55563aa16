"""Groups' progress as it is reported to one shard of several, kept by the shards that coordinate the groups.

RocketMQ's brokers each keep what consumers have committed of their own queues. Here a group has one table, at its
coordinator, so that Kafka's tools see its progress, a member of the other protocol goes on where the last one was, and
a name cannot be two groups. What is noted here goes there once a second and whenever somebody waits for it, as it goes
into the log where one process is all there is. What has not arrived is sent again; what is lost in a crash of this
process is consumed again. What a node sends of a shard that another one has by now is refused.

Of a group one message is under way at a time, so that an older one that is sent again does not take its progress back.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from msgspec import Struct, field

from halfmoon.adapters.rocketmq.progress import WRITE_EVERY_S, Found, Told, exists, place_of
from halfmoon.adapters.rocketmq.shards import Coordinators, Offsets
from halfmoon.core.catalog.catalog import Catalog
from halfmoon.core.catalog.topics import Partition
from halfmoon.errors import BrokerError, Fault

log = logging.getLogger("halfmoon.rocketmq")

AGAIN = frozenset((Fault.COORDINATOR_NOT_AVAILABLE, Fault.COORDINATOR_LOAD_IN_PROGRESS))
"""Faults of a coordinator that will answer later."""


class _Group(Struct):
    noted: dict[Partition, int] = field(default_factory=dict)
    sent: dict[Partition, int] | None = None
    """What is under way to the coordinator."""
    waiting: list[Told] = field(default_factory=list)
    """For what is noted."""


class ShardProgress:
    """See progress.AnyProgress."""

    def __init__(
        self, catalog: Catalog, coordinators: Coordinators, later: Callable[[float, Callable[[], None]], object]
    ) -> None:
        """`later(seconds, callback)` calls back once."""
        self._catalog = catalog
        self._coordinators = coordinators
        self._later = later
        self._groups: dict[str, _Group] = {}
        self._is_due = False
        self._is_stopped = False

    def note(self, group: str, partition: Partition, offset: int) -> None:
        self._groups.setdefault(group, _Group()).noted[partition] = offset
        self._arm()

    def stop(self) -> None:
        """The shard is closed here. What does not arrive now another node may have newer: it is not sent again."""
        self.write()
        self._is_stopped = True

    def _arm(self) -> None:
        if not (self._is_due or self._is_stopped):
            self._is_due = True
            self._later(WRITE_EVERY_S, self._due)

    def _due(self) -> None:
        self._is_due = False
        if not self._is_stopped:
            self.write()

    def write(self, group: str | None = None) -> None:
        for each in [group] if group is not None else list(self._groups):
            self._send(each)

    def commit(self, group: str, told: Told) -> None:
        known = self._groups.setdefault(group, _Group())
        known.waiting.append(told)
        self._send(group)

    def _send(self, group: str) -> None:
        known = self._groups.get(group)
        if known is None or known.sent is not None or not (known.noted or known.waiting):
            return
        sent, waiting = known.noted, known.waiting
        known.noted, known.waiting, known.sent = {}, [], sent
        offsets = {place_of(each): offset for each, offset in sent.items() if exists(self._catalog, each)}

        def told(error: BrokerError | None) -> None:
            self._told(group, known, error)
            for each in waiting:
                each(error)

        self._coordinators.commit(group, offsets, told)

    def _told(self, group: str, known: _Group, error: BrokerError | None) -> None:
        sent, known.sent = known.sent or {}, None
        if error is not None and error.fault in AGAIN:
            known.noted = sent | known.noted
            if known.noted:
                self._arm()
        elif error is not None and error.fault is not Fault.INCONSISTENT_GROUP_PROTOCOL:
            log.error("event=offsets_not_written group=%s error=%s", group, error)
        if known.waiting:
            self._send(group)
        elif not known.noted and known.sent is None:
            self._groups.pop(group, None)

    def set(self, group: str, entries: Sequence[tuple[Partition, int]], told: Told) -> None:
        known = self._groups.get(group, _Group())
        for partition, _ in entries:
            known.noted.pop(partition, None)
            if known.sent is not None:
                known.sent.pop(partition, None)  # it is before this on its way, and not to be sent again behind it
        self._coordinators.commit(group, {place_of(each): offset for each, offset in entries}, told, reset=True)

    def find(self, group: str, partitions: Sequence[Partition], told: Found) -> None:
        here = [self._on_its_way(group, each) for each in partitions]
        places = [place_of(each) for each, offset in zip(partitions, here, strict=True) if offset is None]
        if not places:
            told(here)
            return

        def found(offsets: Offsets | BrokerError) -> None:
            if isinstance(offsets, BrokerError):
                told(offsets)
            else:
                told([
                    offsets.get(place_of(each)) if offset is None else offset
                    for each, offset in zip(partitions, here, strict=True)
                ])  # fmt: skip

        self._coordinators.committed(group, places, found)

    def _on_its_way(self, group: str, partition: Partition) -> int | None:
        known = self._groups.get(group)
        if known is None:
            return None
        noted = known.noted.get(partition)
        return (known.sent or {}).get(partition) if noted is None else noted

    def all(self, group: str, told: Callable[[Offsets | BrokerError], None]) -> None:
        self.write(group)
        self._coordinators.committed(group, None, told)
