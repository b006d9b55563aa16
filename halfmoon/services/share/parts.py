"""The share partitions that are at work.

A share partition (`share_partition`) is made from what the catalog remembers, when a member fetches from it or its dead
letters are to be written. It stays in memory until its group has no session left and it holds nothing that the catalog
does not know. An operator may put another in its place at any moment, also while it is read for: one that is not at
work any more gives nothing out and writes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from halfmoon.core.catalog.catalog import Catalog
from halfmoon.core.catalog.topics import Partition
from halfmoon.services.common.deadlines import Deadlines, Timer
from halfmoon.services.share.delivery_state import DeliveryState, Saved
from halfmoon.services.share.sessions import ShareSessions
from halfmoon.services.share.share_partition import SharePartition
from halfmoon.services.share.state import ShareState


class Place(NamedTuple):
    """A partition of a group."""

    group: str
    partition: Partition


class Part(SharePartition):
    """A share partition at work."""

    __slots__ = ("is_loading", "is_unwritten", "place", "timer")

    def __init__(self, place: Place, start: int, saved: Sequence[Saved] = ()) -> None:
        super().__init__(start, saved)
        self.place = place
        self.timer: Timer[Part] = Timer(self)
        self.is_loading = False
        """A request reads for it from the disk; others do not, or they would read the same."""
        self.is_unwritten = False
        """It has changed, and that could not be written down: the catalog knows less of it."""


class Parts:
    """Of one broker."""

    def __init__(self, state: ShareState, catalog: Catalog, sessions: ShareSessions) -> None:
        self._state = state
        self._catalog = catalog
        self.sessions = sessions
        self._by_group: dict[str, dict[Partition, Part]] = {}
        self._by_partition: dict[Partition, dict[Part, None]] = {}
        self.locks: Deadlines[Part] = Deadlines()
        """When a lock of each may end."""

    def __bool__(self) -> bool:
        return bool(self._by_partition)

    def all(self) -> list[Part]:
        return [part for parts in self._by_group.values() for part in parts.values()]

    def of_group(self, group: str) -> list[Part]:
        return list(self._by_group.get(group, {}).values())

    def of_partition(self, partition: Partition) -> list[Part]:
        return list(self._by_partition.get(partition, ()))

    def at(self, group: str, partitions: Iterable[Partition]) -> list[Part]:
        """Those of a group at these partitions."""
        parts = self._by_group.get(group, {})
        return [parts[partition] for partition in partitions if partition in parts]

    def is_at_work(self, part: Part) -> bool:
        """Whether no other has taken its place."""
        return self._by_group.get(part.place.group, {}).get(part.place.partition) is part

    def is_needed(self, part: Part) -> bool:
        """Whether it has to stay in memory."""
        return (
            self.sessions.any_of(part.place.group)
            or part.is_loading
            or part.is_unwritten
            or part.has_acquired
            or part.dead_letters_pending
        )

    def known(self, group: str, partition: Partition) -> Part | None:
        """What the group knows of a partition, at work from now on; None if it has never looked at it, or the topic is
        gone."""
        part = self._by_group.get(group, {}).get(partition)
        if part is not None:
            return part
        state = self._persisted(group, partition)
        return None if state is None else self.add(Part(Place(group, partition), state.start, state.saved()))

    def seen(self, group: str, partition: Partition) -> SharePartition | None:
        """As `known`, to be looked at only."""
        part = self._by_group.get(group, {}).get(partition)
        if part is not None:
            return part
        state = self._persisted(group, partition)
        return None if state is None else SharePartition(state.start, state.saved())

    def _persisted(self, group: str, partition: Partition) -> DeliveryState | None:
        return self._state.delivery_states.get(group, {}).get((partition.topic.number, partition.index))

    def with_pending_dead_letters(self) -> Iterator[Part]:
        """Of all groups, at work from now on."""
        for group, states in self._state.delivery_states.items():
            for (number, index), state in states.items():
                partition = self._catalog.partition(number, index)
                part = None if partition is None or not state.dead_letters_pending else self.known(group, partition)
                if part is not None:
                    yield part

    def add(self, part: Part) -> Part:
        group, partition = part.place
        self._by_group.setdefault(group, {})[partition] = part
        self._by_partition.setdefault(partition, {})[part] = None
        return part

    def remove(self, part: Part) -> None:
        group, partition = part.place
        of_group, of_partition = self._by_group[group], self._by_partition[partition]
        del of_group[partition], of_partition[part]
        if not of_group:
            del self._by_group[group]
        if not of_partition:
            del self._by_partition[partition]
        self.locks.cancel(part.timer)
