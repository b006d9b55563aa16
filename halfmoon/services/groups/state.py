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
from halfmoon.schema.snapshot import array_head, encode
from halfmoon.services.common.encoded import EncodedLater
from halfmoon.services.groups.consumer.persisted import PersistedGroup

GroupOffsets = dict[tuple[int, int], Committed]
"""(topic number, partition) → what is committed there."""

CommitWatcher = Callable[[str, GroupOffsets, GroupOffsets, bool], None]
"""(group, what it commits, all it has committed before, whether somebody does it who is no member)"""

ENCODED_AT_ONCE = 10_000
"""Offsets, for a snapshot: about three milliseconds. A group's own in one topic are encoded at once."""

LOOKED_AT = 10
"""So many times quicker it is to look for the topics of offsets than to encode them."""

GROUPS_AT_ONCE = 500
"""The same of groups with members: of consumer groups, each may have a thousand of them."""

_number: Callable[[tuple[int, int]], int] = itemgetter(0)

_offsets = msgspec.msgpack.Decoder(list[tuple[str, list[tuple[int, int, Committed]]]])
_groups = msgspec.msgpack.Decoder(list[tuple[GroupRecord, int]])
_consumer_groups = msgspec.msgpack.Decoder(list[tuple[ConsumerGroupChange, int]])


class _InTopic:
    """What one group has committed in one topic."""

    __slots__ = ("count", "encoded")

    def __init__(self) -> None:
        self.count = 0
        """Offsets."""
        self.encoded: bytes | None = None
        """How the last snapshot told them; None: they have changed since."""


class GroupsState(CatalogSection):
    """Groups of both protocols. A name is in `groups`, or in `consumer_groups`, or in none."""

    slots: ClassVar = ("offsets", "groups", "consumer_groups")
    records: ClassVar = (
        control.OffsetsCommitted,
        control.OffsetsDeleted,
        control.GroupSaved,
        control.ConsumerGroupSaved,
        control.GroupDeleted,
        control.GroupsElsewhere,
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
        self._in_topic: dict[int, dict[str, _InTopic]] = {}
        """Topic number → groups with offsets in it: a deleted topic is not looked for in all of them."""
        self._whole = EncodedLater(self._saved)
        """Of groups with offsets."""
        self._saved_groups = EncodedLater(self._saved_group)
        self._saved_consumer_groups = EncodedLater(self._saved_consumer_group)

    def apply(self, record: control.Record) -> None:
        if isinstance(record, control.OffsetsCommitted):
            self.commit(record.group, record.entries, reset=record.reset)
        elif isinstance(record, control.OffsetsDeleted):
            self._delete_offsets(record)
        elif isinstance(record, control.GroupSaved):
            name = record.record.group
            self.groups[name] = record.record, record.wall_ms
            self._saved_groups.changed(name)
            self._forget_consumer_group(name)
        elif isinstance(record, control.ConsumerGroupSaved):
            name = record.change.group
            group = self.consumer_groups.get(name)
            if group is None:
                group = self.consumer_groups[name] = PersistedGroup(name)
            group.apply(record.change, record.wall_ms)
            self._saved_consumer_groups.changed(name)
            self._forget_group(name)
        elif isinstance(record, control.GroupDeleted):
            self._forget(record.group)
        elif isinstance(record, control.GroupsElsewhere):
            for name in record.groups:
                self._forget(name)

    def _forget(self, group: str) -> None:
        """All of it."""
        self._forget_group(group)
        self._forget_consumer_group(group)
        for number, _ in self.offsets.get(group, ()):
            self._uncount(group, number)
        self._drop(group)

    def _forget_group(self, name: str) -> None:
        self.groups.pop(name, None)
        self._saved_groups.drop(name)

    def _forget_consumer_group(self, name: str) -> None:
        self.consumer_groups.pop(name, None)
        self._saved_consumer_groups.drop(name)

    def commit(self, group: str, entries: Iterable[tuple[int, int, Committed]], *, reset: bool = False) -> None:
        """These offsets are committed. `reset`: by somebody who is no member of the group. Topics that are gone do not
        count."""
        self.commit_all(group, {(n, p): committed for n, p, committed in entries}, reset=reset)

    def commit_all(self, group: str, known: GroupOffsets, *, reset: bool = False) -> None:
        """As `commit`, at once: 50,000 take some 10 ms."""
        there = self._places.is_topic
        numbers = set(map(_number, known))
        gone = {number for number in numbers if not there(number)}
        if gone:
            known = {place: committed for place, committed in known.items() if place[0] not in gone}
        if not known:
            return
        self._whole.changed(group)
        offsets = self.offsets.setdefault(group, {})
        for watch in self.on_commit:
            watch(group, known, offsets, reset)
        added = Counter(map(_number, filterfalse(offsets.__contains__, known)))
        for number in numbers - gone:
            groups = self._in_topic.setdefault(number, {})
            there_in = groups.get(group)
            if there_in is None:
                there_in = groups[group] = _InTopic()
            there_in.count += added[number]
            there_in.encoded = None
        offsets.update(known)

    def _uncount(self, group: str, number: int) -> None:
        """One of its offsets in this topic is no more."""
        groups = self._in_topic[number]
        groups[group].count -= 1
        groups[group].encoded = None
        self._whole.changed(group)
        if not groups[group].count:
            del groups[group]
            if not groups:
                del self._in_topic[number]

    def _delete_offsets(self, record: control.OffsetsDeleted) -> None:
        offsets = self.offsets.get(record.group)
        if offsets is None:
            return
        for place in record.entries:
            if offsets.pop(place, None) is not None:
                self._uncount(record.group, place[0])
        if not offsets:
            self._drop(record.group)

    def topic_deleted(self, number: int, partitions: int) -> None:
        for group, in_topic in self._in_topic.pop(number, {}).items():
            self._whole.changed(group)
            offsets = self.offsets[group]
            for place in _places(offsets, number, partitions, in_topic.count):
                del offsets[place]
            if not offsets:
                self._drop(group)

    def _drop(self, group: str) -> None:
        """It has no offsets."""
        self.offsets.pop(group, None)
        self._whole.drop(group)

    def save(self, slot: str) -> object:
        if slot == "offsets":
            return self._whole.raw()
        return self._saved_groups.raw() if slot == "groups" else self._saved_consumer_groups.raw()

    def size(self) -> int:
        return len(self.offsets) + len(self.groups) + len(self.consumer_groups)

    def prepare(self) -> Iterator[None]:
        work = 0
        while (group := self._whole.next_left()) is not None:
            changed = 0
            work += len(self.offsets.get(group, ())) // LOOKED_AT
            for number in self._topics_of(group):
                in_topic = self._in_topic.get(number, {}).get(group)
                if in_topic is not None and in_topic.encoded is None:
                    self._encode(group, number, in_topic)
                    changed += 1
                    work += 10 + in_topic.count
                if work >= ENCODED_AT_ONCE:
                    work = 0
                    yield
            self._whole.encode(group)
            if not changed:  # only a topic is gone, which may be so of very many groups
                work += 10
            if work >= ENCODED_AT_ONCE:
                work = 0
                yield
        yield from self._saved_groups.prepare(GROUPS_AT_ONCE)
        yield from self._saved_consumer_groups.prepare(GROUPS_AT_ONCE)

    def _saved_group(self, name: str) -> bytes:
        return encode(self.groups[name])

    def _saved_consumer_group(self, name: str) -> bytes:
        group = self.consumer_groups[name]
        return encode((group.whole(), group.saved_ms))

    def _saved(self, group: str) -> bytes:
        """(group, its offsets), encoded: those that have changed take 0.3 µs each."""
        parts = []
        for number in self._topics_of(group):
            in_topic = self._in_topic[number][group]
            parts.append(self._encode(group, number, in_topic) if in_topic.encoded is None else in_topic.encoded)
        return b"".join((array_head(2), encode(group), array_head(len(self.offsets[group])), *parts))

    def _topics_of(self, group: str) -> list[int]:
        """Those in which it has offsets, by number. 50,000 offsets take two milliseconds."""
        return list(dict.fromkeys(map(_number, self.offsets.get(group, ()))))

    def _encode(self, group: str, number: int, in_topic: _InTopic) -> bytes:
        """Its offsets in one topic, end to end."""
        offsets = self.offsets[group]
        places = _places(offsets, number, self._places.partition_count(number), in_topic.count)
        in_topic.encoded = encoded = b"".join([encode((*place, offsets[place])) for place in places])
        return encoded

    def restore(self, slot: str, saved: msgspec.Raw) -> None:
        if slot == "offsets":
            self.offsets = {group: {(n, p): c for n, p, c in entries} for group, entries in _offsets.decode(saved)}
            self._in_topic, self._whole = {}, EncodedLater(self._saved)
            for group, offsets in self.offsets.items():
                self._whole.changed(group)
                for number, count in Counter(map(_number, offsets)).items():
                    in_topic = self._in_topic.setdefault(number, {})[group] = _InTopic()
                    in_topic.count = count
        elif slot == "groups":
            self.groups = {record.group: (record, wall_ms) for record, wall_ms in _groups.decode(saved)}
            self._saved_groups = EncodedLater(self._saved_group)
            for name in self.groups:
                self._saved_groups.changed(name)
        else:
            self.consumer_groups, self._saved_consumer_groups = {}, EncodedLater(self._saved_consumer_group)
            for whole, saved_ms in _consumer_groups.decode(saved):
                remembered = self.consumer_groups[whole.group] = PersistedGroup(whole.group)
                remembered.apply(whole, saved_ms)
                self._saved_consumer_groups.changed(whole.group)


def _places(offsets: GroupOffsets, number: int, partitions: int, count: int) -> list[tuple[int, int]]:
    """The `count` that are in a topic of so many partitions, by partition."""
    if partitions < len(offsets):
        found = [place for place in ((number, index) for index in range(partitions)) if place in offsets]
        if len(found) == count:
            return found
    return sorted([place for place in offsets if place[0] == number])
