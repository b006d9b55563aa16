"""Which access rules are kept, as the log says it."""

from __future__ import annotations

from typing import ClassVar

import msgspec

from halfmoon.core.catalog.section import CatalogSection
from halfmoon.schema import control
from halfmoon.schema.control import AclRule

_acls = msgspec.msgpack.Decoder(list[AclRule])


class AclsState(CatalogSection):
    slots: ClassVar = ("acls",)
    records: ClassVar = (control.AclsChanged,)

    def __init__(self) -> None:
        self.rules: dict[AclRule, None] = {}
        """In the order in which they were made."""

    def apply(self, record: control.Record) -> None:
        assert isinstance(record, control.AclsChanged)
        for rule in record.removed:
            self.rules.pop(rule, None)
        self.rules.update(dict.fromkeys(record.added))

    def save(self, slot: str) -> object:
        return list(self.rules)

    def restore(self, slot: str, saved: msgspec.Raw) -> None:
        self.rules = dict.fromkeys(_acls.decode(saved))
