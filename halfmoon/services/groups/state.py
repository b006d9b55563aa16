"""What the log remembers of groups: their members, and the offsets that they have committed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from itertools import filterfalse
from operator import itemgetter
from typing import ClassVar

import msgspec

from halfmoon.core.catalog.section import CatalogSection, Places
from halfmoon.schema import control
from halfmoon.schema.control import Committed
from halfmoon.schema.groups import ConsumerGroupChange, GroupRecord
from halfmoon.schema.snapshot import encode
from halfmoon.services.groups.consumer.persisted import PersistedGroup

GroupOffsets = dict[tuple[int, int], Committed]
"""(topic number, partition) → what is committed there."""

CommitWatcher = Callable[[str, GroupOffsets, GroupOffsets, bool], None]
"""(group, what it commits, all it has committed before, whether somebody does it who is no member)"""

ENCODED_AT_ONCE = 10_000
"""Offsets, for a snapshot: about two milliseconds. A group's own are encoded at once, however many they are."""

_number = itemgetter(0)

_offsets = msgspec.msgpack.Decoder(list[tuple[str, list[tuple[int, int, Committed]]]])
_groups = msgspec.msgpack.Decoder(list[tuple[GroupRecord, int]])
_consumer_groups = msgspec.msgpack.Decoder(list[tuple[ConsumerGroupChange, int]])


class GroupsState(CatalogSection):
    """Groups of both protocols. A name is in `groups`, or in `consumer_groups`, or in none."""

    slots: ClassVar = ("offsets", "groups", "consumer_groups")
    records: ClassVar = (
        control.OffsetsCommitted,
        control.OffsetsDeleted,
        control.GroupSaved,
        control.ConsumerGroupSaved,
        control.GroupDeleted,
    )

    def __init__(self, places: Places) -> None:
        self._places = places
        self.offsets: dict[str, GroupOffsets] = {}
        self.groups: dict[str, tuple[GroupRecord, int]] = {}
        """Classic group → its last record, and when that was written (Unix ms)."""
        self.consumer_groups: dict[str, PersistedGroup] = {}
        """Those of the new protocol (KIP-848)."""
        self.on_commit: list[CommitWatcher] = []
        """Called before the new offsets are there: by sections that keep something until then."""
        self._in_topic: dict[int, dict[str, int]] = {}
        """Topic number → groups with offsets in it, and how many: a deleted topic is not looked for in all of them."""
        self._saved: dict[str, bytes] = {}
        """Group → how the last snapshot told its offsets, unless they have changed since."""

    def apply(self, record: control.Record) -> None:
        if isinstance(record, control.OffsetsCommitted):
            self.commit(record.group, record.entries, reset=record.reset)
        elif isinstance(record, control.OffsetsDeleted):
            self._delete_offsets(record)
        elif isinstance(record, control.GroupSaved):
            self.groups[record.record.group] = record.record, record.wall_ms
            self.consumer_groups.pop(record.record.group, None)
        elif isinstance(record, control.ConsumerGroupSaved):
            name = record.change.group
            group = self.consumer_groups.get(name)
            if group is None:
                group = self.consumer_groups[name] = PersistedGroup(name)
            group.apply(record.change, record.wall_ms)
            self.groups.pop(name, None)
        elif isinstance(record, control.GroupDeleted):
            self.groups.pop(record.group, None)
            self.consumer_groups.pop(record.group, None)
            self._saved.pop(record.group, None)
            for number, _ in self.offsets.pop(record.group, ()):
                self._uncount(record.group, number)

    def commit(self, group: str, entries: Iterable[tuple[int, int, Committed]], *, reset: bool = False) -> None:
        """These offsets are committed. `reset`: by somebody who is no member of the group. Topics that are gone do not
        count."""
        self.commit_all(group, {(n, p): committed for n, p, committed in entries}, reset=reset)

    def commit_all(self, group: str, known: GroupOffsets, *, reset: bool = False) -> None:
        """As `commit`, at once: 50,000 take some 10 ms."""
        there = self._places.is_topic
        gone = {number for number in set(map(_number, known)) if not there(number)}
        if gone:
            known = {place: committed for place, committed in known.items() if place[0] not in gone}
        if not known:
            return
        self._saved.pop(group, None)
        offsets = self.offsets.setdefault(group, {})
        for watch in self.on_commit:
            watch(group, known, offsets, reset)
        counts: dict[int, int] = {}
        for number, _ in filterfalse(offsets.__contains__, known):
            counts[number] = counts.get(number, 0) + 1
        for number, count in counts.items():
            groups = self._in_topic.setdefault(number, {})
            groups[group] = groups.get(group, 0) + count
        offsets.update(known)

    def _uncount(self, group: str, number: int) -> None:
        """One of its offsets in this topic is no more."""
        groups = self._in_topic[number]
        groups[group] -= 1
        if not groups[group]:
            del groups[group]
            if not groups:
                del self._in_topic[number]

    def _delete_offsets(self, record: control.OffsetsDeleted) -> None:
        offsets = self.offsets.get(record.group)
        if offsets is None:
            return
        self._saved.pop(record.group, None)
        for place in record.entries:
            if offsets.pop(place, None) is not None:
                self._uncount(record.group, place[0])
        if not offsets:
            del self.offsets[record.group]

    def topic_deleted(self, number: int, partitions: int) -> None:
        for group in self._in_topic.pop(number, ()):
            self._saved.pop(group, None)
            offsets = self.offsets[group]
            places = (
                [place for place in offsets if place[0] == number]
                if len(offsets) < partitions
                else ((number, index) for index in range(partitions))
            )
            for place in places:
                offsets.pop(place, None)
            if not offsets:
                del self.offsets[group]

    def save(self, slot: str) -> object:
        if slot == "offsets":
            return [msgspec.Raw(self._encoded(group)) for group in self.offsets]
        if slot == "groups":
            return list(self.groups.values())
        return [(group.whole(), group.saved_ms) for group in self.consumer_groups.values()]

    def prepare(self) -> Iterator[None]:
        work = 0
        for group in list(self.offsets):
            if group in self.offsets and group not in self._saved:
                self._encoded(group)
                work += len(self.offsets[group]) + 10
                if work >= ENCODED_AT_ONCE:
                    work = 0
                    yield

    def _encoded(self, group: str) -> bytes:
        """Takes 0.2 µs for each of its offsets, the first time."""
        saved = self._saved.get(group)
        if saved is None:
            offsets = [(number, index, committed) for (number, index), committed in self.offsets[group].items()]
            saved = self._saved[group] = encode((group, offsets))
        return saved

    def restore(self, slot: str, saved: msgspec.Raw) -> None:
        self._saved = {}
        if slot == "offsets":
            self.offsets = {group: {(n, p): c for n, p, c in entries} for group, entries in _offsets.decode(saved)}
            self._in_topic = {}
            for group, offsets in self.offsets.items():
                for number, count in Counter(number for number, _ in offsets).items():
                    self._in_topic.setdefault(number, {})[group] = count
        elif slot == "groups":
            self.groups = {record.group: (record, wall_ms) for record, wall_ms in _groups.decode(saved)}
        else:
            self.consumer_groups = {}
            for whole, saved_ms in _consumer_groups.decode(saved):
                remembered = self.consumer_groups[whole.group] = PersistedGroup(whole.group)
                remembered.apply(whole, saved_ms)
