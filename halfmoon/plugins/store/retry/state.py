"""Which records a group has negatively acknowledged and not committed since, as the log says it: so that each is
redelivered once, however often the group asks.

Of a group that does not commit where it nacks (a share group, Flink, whoever hands dead letters back) it goes with the
records: below a partition's start nothing is remembered. And it goes with the group, when that is deleted or expires.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import ClassVar

import msgspec

from halfmoon.plugin.moving import CatalogSection, Partition, Places
from halfmoon.plugins.store.retry.offset_runs import OffsetRuns
from halfmoon.schema import control
from halfmoon.schema.provenance import Provenance

Offsets = Mapping[tuple[int, int], control.Committed]
"""By topic number and partition."""

_nacked = msgspec.msgpack.Decoder(list[tuple[str, list[tuple[int, int, list[int]]]]])


class NackedState(CatalogSection):
    slots: ClassVar = ("sent_back",)
    records: ClassVar = (
        control.OffsetsDeleted,
        control.GroupDeleted,
        control.GroupsElsewhere,
        control.StartOffsetsMoved,
    )

    def __init__(self, places: Places) -> None:
        self._places = places
        self.nacked: dict[str, dict[tuple[int, int], OffsetRuns]] = {}
        """Group → partition (topic number, index) → offsets."""

    def was_nacked(self, group: str, partition: Partition, offset: int) -> bool:
        return offset in self.nacked.get(group, {}).get((partition.topic.number, partition.index), ())

    def nacked_in(self, topic_numbers: Collection[int]) -> dict[tuple[str, int, int], list[tuple[int, int]]]:
        """(group, topic number, partition) → (first offset, count), ascending, of these topics."""
        return {
            (group, *place): runs.runs()
            for group, places in self.nacked.items()
            for place, runs in places.items()
            if place[0] in topic_numbers
        }

    def proved(self, proof: Provenance) -> None:
        back = proof.sent_back
        if back is not None:
            places = self.nacked.setdefault(back.group, {})
            for run in back.runs:
                place = run.topic_number, run.partition
                runs = places.get(place)
                if runs is None:
                    runs = places[place] = OffsetRuns()
                runs.add(run.first_offset, run.count)

    def committed(self, group: str, known: Offsets, all_before: Offsets, reset: bool) -> None:
        """A group commits offsets; `all_before`: what it has committed until then.

        What it had committed before it does not nack any more. What is between the two it may: a commit that was on its
        way while the broker was away can come after its consumers have begun again, from the commit before. They may
        also commit less meanwhile; but a group that is reset from outside may nack everything anew.
        """
        places = self.nacked.get(group)
        if places is None:
            return
        for place in places.keys() & known.keys():
            offset = known[place].offset
            before = all_before[place].offset if place in all_before else -1
            if offset > before:
                places[place].drop_below(before)
            elif offset < before and reset:
                places[place] = OffsetRuns()
            if not places[place]:
                del places[place]
        if not places:
            del self.nacked[group]

    def apply(self, record: control.Record) -> None:
        if isinstance(record, control.OffsetsDeleted):
            places = self.nacked.get(record.group, {})
            for place in record.entries:  # the group begins again, and may nack everything anew
                places.pop(place, None)
            if not places:
                self.nacked.pop(record.group, None)
        elif isinstance(record, control.GroupDeleted):
            self.nacked.pop(record.group, None)
        elif isinstance(record, control.GroupsElsewhere):
            for group in record.groups:
                self.nacked.pop(group, None)
        elif isinstance(record, control.StartOffsetsMoved):
            self._forget({(number, index): start for number, index, start in record.moves})

    def _forget(self, starts: Mapping[tuple[int, int], int]) -> None:
        """What lies below the starts of these partitions."""
        for group, places in list(self.nacked.items()):
            for place in places.keys() & starts.keys():
                places[place].drop_below(starts[place])
                if not places[place]:
                    del places[place]
            if not places:
                del self.nacked[group]

    def topic_deleted(self, number: int, partitions: int) -> None:
        for group, places in list(self.nacked.items()):
            for index in range(partitions):
                places.pop((number, index), None)
            if not places:
                del self.nacked[group]

    def save(self, slot: str) -> object:
        # Retention moves starts without a record.
        there = {place for places in self.nacked.values() for place in places}
        found = {place: partition for place in there if (partition := self._places.partition(*place)) is not None}
        self._forget({place: partition.start_offset for place, partition in found.items()})
        return [
            (group, [(n, p, runs.numbers()) for (n, p), runs in places.items()])
            for group, places in self.nacked.items()
        ]

    def restore(self, slot: str, saved: msgspec.Raw) -> None:
        self.nacked = {
            group: {(n, p): OffsetRuns(numbers) for n, p, numbers in places} for group, places in _nacked.decode(saved)
        }
