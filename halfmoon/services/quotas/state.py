"""Which client quotas are set, as the log says it."""

from __future__ import annotations

from typing import ClassVar

import msgspec

from halfmoon.core.catalog.section import CatalogSection
from halfmoon.schema import control
from halfmoon.services.common.encoded import EncodedArray

Entity = tuple[tuple[str, str | None], ...]
"""Whom a quota is for: (type, name) of its parts, sorted by type; None for the default of the type."""

_quotas = msgspec.msgpack.Decoder(list[tuple[list[tuple[str, str | None]], dict[str, float]]])


class QuotasState(CatalogSection):
    slots: ClassVar = ("quotas",)
    records: ClassVar = (control.QuotasSet,)

    def __init__(self) -> None:
        self.quotas: dict[Entity, dict[str, float]] = {}
        """Never empty inside."""
        self._encoded: EncodedArray[Entity] = EncodedArray()

    def apply(self, record: control.Record) -> None:
        assert isinstance(record, control.QuotasSet)
        entity = tuple(record.entity)
        if record.quotas:
            self._set(entity, record.quotas)
        else:
            self.quotas.pop(entity, None)
            self._encoded.drop(entity)

    def _set(self, entity: Entity, quotas: dict[str, float]) -> None:
        self.quotas[entity] = quotas
        self._encoded.set(entity, (entity, quotas))

    def save(self, slot: str) -> object:
        return self._encoded.raw()

    def restore(self, slot: str, saved: msgspec.Raw) -> None:
        self.quotas, self._encoded = {}, EncodedArray()
        for entity, quotas in _quotas.decode(saved):
            self._set(tuple(entity), quotas)
