"""What the log remembers of share groups: their epochs, and what each has done in each partition."""

from __future__ import annotations

from typing import ClassVar

import msgspec

from halfmoon.core.catalog.section import CatalogSection, Places
from halfmoon.schema import control
from halfmoon.schema.provenance import Provenance
from halfmoon.services.share.delivery_state import FINISHED, DeliveryState, Saved

_share_groups = msgspec.msgpack.Decoder(list[tuple[str, int]])
_shares = msgspec.msgpack.Decoder(list[tuple[str, list[tuple[int, int, int, list[Saved]]]]])


class ShareState(CatalogSection):
    slots: ClassVar = ("share_groups", "shares")
    records: ClassVar = (
        control.ShareGroupSaved,
        control.ShareChanged,
        control.ShareReset,
        control.ShareForgotten,
        control.GroupDeleted,
        control.GroupsElsewhere,
    )

    def __init__(self, places: Places) -> None:
        self._places = places
        self.epochs: dict[str, int] = {}
        """Share group → its epoch."""
        self.delivery_states: dict[str, dict[tuple[int, int], DeliveryState]] = {}
        """Share group → partition (topic number, index) → what it has done there."""

    def apply(self, record: control.Record) -> None:
        if isinstance(record, control.ShareChanged):
            self._changed(record)
        elif isinstance(record, control.ShareGroupSaved):
            self.epochs[record.group] = record.epoch
        elif isinstance(record, control.ShareReset):
            for number, index, start in record.starts:
                if self._places.partition(number, index) is not None:
                    self.delivery_states.setdefault(record.group, {})[number, index] = DeliveryState(start)
        elif isinstance(record, control.ShareForgotten):
            delivery_states = self.delivery_states.get(record.group, {})
            for place in record.places:
                delivery_states.pop(place, None)
        elif isinstance(record, control.GroupDeleted):
            self.epochs.pop(record.group, None)
            self.delivery_states.pop(record.group, None)
        elif isinstance(record, control.GroupsElsewhere):
            for group in record.groups:
                self.epochs.pop(group, None)

    def _changed(self, record: control.ShareChanged) -> None:
        place = record.number, record.partition
        if self._places.partition(*place) is None:
            return
        delivery_states = self.delivery_states.setdefault(record.group, {})
        delivery_state = delivery_states.get(place)
        if delivery_state is None:
            delivery_state = delivery_states[place] = DeliveryState(record.start)
        delivery_state.put(record.changed)
        delivery_state.begin_at(record.start)

    def proved(self, proof: Provenance) -> None:
        """Dead letters are written."""
        given_up = proof.given_up
        for run in () if given_up is None else given_up.runs:
            assert given_up is not None
            delivery_state = self.delivery_states.get(given_up.group, {}).get((run.topic_number, run.partition))
            if delivery_state is not None and run.first_offset >= delivery_state.start:  # else it was reset meanwhile
                delivery_state.put([(run.first_offset, run.first_offset + run.count, FINISHED, 0)])

    def topic_deleted(self, number: int, partitions: int) -> None:
        for delivery_states in self.delivery_states.values():
            for index in range(partitions):
                delivery_states.pop((number, index), None)

    def save(self, slot: str) -> object:
        if slot == "share_groups":
            return list(self.epochs.items())
        return [
            (
                group,
                [
                    (n, p, delivery_state.start, delivery_state.saved())
                    for (n, p), delivery_state in delivery_states.items()
                ],
            )
            for group, delivery_states in self.delivery_states.items()
        ]

    def restore(self, slot: str, saved: msgspec.Raw) -> None:
        if slot == "share_groups":
            self.epochs = dict(_share_groups.decode(saved))
        else:
            self.delivery_states = {
                group: {(n, p): DeliveryState(start, runs) for n, p, start, runs in delivery_states}
                for group, delivery_states in _shares.decode(saved)
            }
