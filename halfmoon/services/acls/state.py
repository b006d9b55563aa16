"""Which access rules are kept, as the log says it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import ClassVar

import msgspec

from halfmoon.core.catalog.section import CatalogSection
from halfmoon.schema import control
from halfmoon.schema.control import AclRule
from halfmoon.services.common.encoded import EncodedArray

Watcher = Callable[[Iterable[AclRule], Iterable[AclRule]], None]
"""(rules that are gone, rules that are new)"""

_acls = msgspec.msgpack.Decoder(list[AclRule])


class AclsState(CatalogSection):
    slots: ClassVar = ("acls",)
    records: ClassVar = (control.AclsChanged,)

    def __init__(self) -> None:
        self.rules: dict[AclRule, int] = {}
        """In the order in which they were made, with numbers that say it."""
        self.by_name: dict[str, set[AclRule]] = {}
        """By their resources' names."""
        self.watchers: list[Watcher] = []
        """Called after each change."""
        self._encoded: EncodedArray[int] = EncodedArray()
        """By their numbers."""
        self._next = 0

    def apply(self, record: control.Record) -> None:
        assert isinstance(record, control.AclsChanged)
        for rule in record.removed:
            number = self.rules.pop(rule, None)
            if number is not None:
                self._encoded.drop(number)
                named = self.by_name[rule.resource_name]
                named.discard(rule)
                if not named:
                    del self.by_name[rule.resource_name]
        for rule in record.added:
            self._add(rule)
        self._tell(record.removed, record.added)

    def _tell(self, removed: Iterable[AclRule], added: Iterable[AclRule]) -> None:
        for watcher in self.watchers:
            watcher(removed, added)

    def _add(self, rule: AclRule) -> None:
        if rule not in self.rules:
            self.rules[rule] = self._next
            self._encoded.set(self._next, rule)
            self._next += 1
            self.by_name.setdefault(rule.resource_name, set()).add(rule)

    def save(self, slot: str) -> object:
        return self._encoded.raw()

    def restore(self, slot: str, saved: msgspec.Raw) -> None:
        before = self.rules
        self.rules, self.by_name, self._encoded = {}, {}, EncodedArray()
        for rule in _acls.decode(saved):
            self._add(rule)
        self._tell(before, self.rules)
