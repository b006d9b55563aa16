"""Groups' progress as RocketMQ's clients report it (B14, B18): in every pull, and every five seconds.

That may be thousands of times a second, so it is noted here and written down, in the table that all protocols share,
once a second and whenever somebody wants to know. What is lost in a crash is consumed again, as with RocketMQ, which
writes it every five seconds (org.apache.rocketmq.broker.offset.ConsumerOffsetManager).
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from halfmoon.adapters.tcp.core import Core
from halfmoon.core.catalog.topics import Partition
from halfmoon.errors import BrokerError
from halfmoon.services.groups.service import GroupService

log = logging.getLogger("halfmoon.rocketmq")

WRITE_EVERY_S = 1.0


class Progress:
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

    def write_or_refuse(self, group: str) -> None:
        """The same, for who waits for it. Raises BrokerError."""
        core = self._core
        noted = self._noted.pop(group, {})
        known = self._groups.all_offsets.get(group, {})
        entries = []
        for partition, offset in noted.items():
            place = partition.topic.number, partition.index
            exists = core.catalog.partition(*place) is partition
            if exists and (place not in known or known[place].offset != offset):
                entries.append((partition, offset, -1, ""))
        if entries:
            self._groups.record(group, entries, reset=False)

    def set(self, group: str, partition: Partition, offset: int) -> int:
        """Set progress from outside; the log position to wait for. Raises BrokerError."""
        self._noted.get(group, {}).pop(partition, None)
        return self._groups.record(group, [(partition, offset, -1, "")], reset=True)

    def offset(self, group: str, partition: Partition) -> int | None:
        """Up to where the group has consumed; None where it has never said."""
        noted = self._noted.get(group, {}).get(partition)
        if noted is not None:
            return noted
        committed = self._groups.all_offsets.get(group, {}).get((partition.topic.number, partition.index))
        return None if committed is None else committed.offset
