"""What the log remembers of share groups: their epochs, and what each has done in each partition."""

from __future__ import annotations

from typing import ClassVar

import msgspec

from halfmoon.core.catalog.section import CatalogSection, Places
from halfmoon.core.provenance import Provenance
from halfmoon.core.share.ledger import FINISHED, Ledger, Saved
from halfmoon.schema import control

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
    )

    def __init__(self, places: Places) -> None:
        self._places = places
        self.epochs: dict[str, int] = {}
        """Share group → its epoch."""
        self.ledgers: dict[str, dict[tuple[int, int], Ledger]] = {}
        """Share group → partition (topic number, index) → what it has done there."""

    def apply(self, record: control.Record) -> None:
        if isinstance(record, control.ShareChanged):
            self._changed(record)
        elif isinstance(record, control.ShareGroupSaved):
            self.epochs[record.group] = record.epoch
        elif isinstance(record, control.ShareReset):
            for number, index, start in record.starts:
                if self._places.partition(number, index) is not None:
                    self.ledgers.setdefault(record.group, {})[number, index] = Ledger(start)
        elif isinstance(record, control.ShareForgotten):
            ledgers = self.ledgers.get(record.group, {})
            for place in record.places:
                ledgers.pop(place, None)
        elif isinstance(record, control.GroupDeleted):
            self.epochs.pop(record.group, None)
            self.ledgers.pop(record.group, None)

    def _changed(self, record: control.ShareChanged) -> None:
        place = record.number, record.partition
        if self._places.partition(*place) is None:
            return
        ledgers = self.ledgers.setdefault(record.group, {})
        ledger = ledgers.get(place)
        if ledger is None:
            ledger = ledgers[place] = Ledger(record.start)
        ledger.put(record.changed)
        ledger.begin_at(record.start)

    def proved(self, proof: Provenance) -> None:
        """Dead letters are written."""
        given_up = proof.given_up
        for run in () if given_up is None else given_up.runs:
            assert given_up is not None
            ledger = self.ledgers.get(given_up.group, {}).get((run.topic_number, run.partition))
            if ledger is not None and run.first_offset >= ledger.start:  # else it was reset meanwhile
                ledger.put([(run.first_offset, run.first_offset + run.count, FINISHED, 0)])

    def topic_deleted(self, number: int, partitions: int) -> None:
        for ledgers in self.ledgers.values():
            for index in range(partitions):
                ledgers.pop((number, index), None)

    def save(self, slot: str) -> object:
        if slot == "share_groups":
            return list(self.epochs.items())
        return [
            (group, [(n, p, ledger.start, ledger.saved()) for (n, p), ledger in ledgers.items()])
            for group, ledgers in self.ledgers.items()
        ]

    def restore(self, slot: str, saved: msgspec.Raw) -> None:
        if slot == "share_groups":
            self.epochs = dict(_share_groups.decode(saved))
        else:
            self.ledgers = {
                group: {(n, p): Ledger(start, runs) for n, p, start, runs in ledgers}
                for group, ledgers in _shares.decode(saved)
            }
