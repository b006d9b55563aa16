"""Which records a group has negatively acknowledged and not committed since, as the log says it: so that each is
redelivered once, however often the group asks."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import ClassVar

import msgspec

from halfmoon.plugin.moving import CatalogSection, Partition
from halfmoon.schema import control
from halfmoon.schema.provenance import Provenance

_nacked = msgspec.msgpack.Decoder(list[tuple[str, list[tuple[int, int, list[int]]]]])


class NackedState(CatalogSection):
    slots: ClassVar = ("sent_back",)
    records: ClassVar = (control.OffsetsDeleted, control.GroupDeleted)

    def __init__(self) -> None:
        self.nacked: dict[str, dict[tuple[int, int], set[int]]] = {}
        """Group → partition (topic number, index) → offsets."""

    def was_nacked(self, group: str, partition: Partition, offset: int) -> bool:
        return offset in self.nacked.get(group, {}).get((partition.topic.number, partition.index), ())

    def nacked_in(self, topic_numbers: Collection[int]) -> dict[tuple[str, int, int], Sequence[int]]:
        """(group, topic number, partition) → offsets in no order, of these topics: a copy, for a thread."""
        return {
            (group, *place): tuple(offsets)
            for group, places in self.nacked.items()
            for place, offsets in places.items()
            if place[0] in topic_numbers
        }

    def proved(self, proof: Provenance) -> None:
        back = proof.sent_back
        if back is not None:
            places = self.nacked.setdefault(back.group, {})
            for run in back.runs:
                offsets = range(run.first_offset, run.first_offset + run.count)
                places.setdefault((run.topic_number, run.partition), set()).update(offsets)

    def committed(self, group: str, place: tuple[int, int], offset: int, before: int, reset: bool) -> None:
        """A group commits `offset` after `before`.

        What it had committed before it does not nack any more. What is between the two it may: a commit that was on its
        way while the broker was away can come after its consumers have begun again, from the commit before. They may
        also commit less meanwhile; but a group that is reset from outside may nack everything anew.
        """
        places = self.nacked.get(group)
        if places is None or place not in places:
            return
        if offset < before:
            kept = set() if reset else places[place]
        else:
            kept = {each for each in places[place] if each >= before} if offset > before else places[place]
        if kept:
            places[place] = kept
        else:
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

    def topic_deleted(self, number: int, partitions: int) -> None:
        for places in self.nacked.values():
            for index in range(partitions):
                places.pop((number, index), None)

    def save(self, slot: str) -> object:
        return [
            (group, [(n, p, sorted(offsets)) for (n, p), offsets in places.items()])
            for group, places in self.nacked.items()
        ]

    def restore(self, slot: str, saved: msgspec.Raw) -> None:
        self.nacked = {
            group: {(n, p): set(offsets) for n, p, offsets in places} for group, places in _nacked.decode(saved)
        }
