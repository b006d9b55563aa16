"""What the log remembers of messages that wait, besides that they do (which is their partition's)."""

from __future__ import annotations

from typing import ClassVar

import msgspec

from halfmoon.core.catalog.section import CatalogSection
from halfmoon.core.pending import CHUNK
from halfmoon.schema import control
from halfmoon.schema.provenance import Provenance

_attempts = msgspec.msgpack.Decoder(list[tuple[int, int, int, int]])


class AttemptsState(CatalogSection):
    """How often a message that still waits was looked at."""

    slots: ClassVar = ("attempts",)
    records: ClassVar = (control.Settled, control.WaitingKept)

    def __init__(self) -> None:
        self.attempts: dict[tuple[int, int, int], int] = {}
        """Waiting message (topic number, partition, offset) → how often; where it was."""

    def apply(self, record: control.Record) -> None:
        if isinstance(record, control.Settled) and self.attempts:
            for place in record.places:
                self.attempts.pop(place, None)
        elif isinstance(record, control.WaitingKept) and self.attempts:
            self._keep(record)

    def _keep(self, record: control.WaitingKept) -> None:
        kept = {number: int.from_bytes(bits, "little") for number, bits in record.kept}
        for number, index, offset in list(self.attempts):
            if (number, index) == (record.number, record.partition) and offset < record.upto:
                chunk, bit = divmod(offset, CHUNK)
                if not kept.get(chunk, 0) >> bit & 1:
                    del self.attempts[number, index, offset]

    def proved(self, proof: Provenance) -> None:
        if self.attempts:
            for run in proof.sources:
                for offset in range(run.first_offset, run.first_offset + run.count):
                    self.attempts.pop((run.topic_number, run.partition, offset), None)
        for run in proof.attempts:
            self.attempts[run.topic_number, run.partition, run.first_offset] = run.count

    def save(self, slot: str) -> object:
        return [(*place, count) for place, count in self.attempts.items()]

    def restore(self, slot: str, saved: msgspec.Raw) -> None:
        self.attempts = {(number, index, offset): count for number, index, offset, count in _attempts.decode(saved)}
