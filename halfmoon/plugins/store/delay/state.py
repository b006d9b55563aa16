"""Which delayed messages are cancelled and not found yet, as the log says it."""

from __future__ import annotations

from typing import ClassVar

import msgspec

from halfmoon.plugin.moving import CatalogSection, Places
from halfmoon.schema import control

_cancels = msgspec.msgpack.Decoder(list[tuple[int, bytes, int]])


class CancelsState(CatalogSection):
    slots: ClassVar = ("cancels",)
    records: ClassVar = (control.Cancelled, control.CancelsDone)

    def __init__(self, places: Places) -> None:
        self._places = places
        self.cancels: dict[int, dict[bytes, int]] = {}
        """Topic number → UNIQ_KEY of messages that are not to be delivered, and below which log position they were
        sent; until all have been found that wait."""

    def apply(self, record: control.Record) -> None:
        if isinstance(record, control.Cancelled):
            if self._places.is_topic(record.number):
                keys = self.cancels.setdefault(record.number, {})
                for key in record.keys:
                    keys[key] = max(record.position, keys.get(key, 0))
        elif isinstance(record, control.CancelsDone):
            for number, key in record.cancels:
                keys = self.cancels.get(number, {})
                keys.pop(key, None)
                if not keys:
                    self.cancels.pop(number, None)

    def topic_deleted(self, number: int, partitions: int) -> None:
        self.cancels.pop(number, None)

    def save(self, slot: str) -> object:
        return [(number, key, at) for number, keys in self.cancels.items() for key, at in keys.items()]

    def restore(self, slot: str, saved: msgspec.Raw) -> None:
        self.cancels = {}
        for number, key, at in _cancels.decode(saved):
            self.cancels.setdefault(number, {})[key] = at
