"""Which users and delegation tokens there are, as the log says it."""

from __future__ import annotations

from collections import Counter
from typing import ClassVar

import msgspec

from halfmoon.core.catalog.section import CatalogSection
from halfmoon.schema import control
from halfmoon.schema.control import DelegationToken, User

_users = msgspec.msgpack.Decoder(list[User])
_tokens = msgspec.msgpack.Decoder(list[DelegationToken])


class CredentialsState(CatalogSection):
    slots: ClassVar = ("users", "tokens")
    records: ClassVar = (control.UsersChanged, control.TokensChanged)

    def __init__(self) -> None:
        self.users: dict[str, User] = {}
        self.tokens: dict[str, DelegationToken] = {}
        self.owned: Counter[str] = Counter()
        """How many tokens each owner has."""

    def apply(self, record: control.Record) -> None:
        if isinstance(record, control.UsersChanged):
            for name in record.removed:
                self.users.pop(name, None)
            self.users.update((each.name, each) for each in record.changed)
        else:
            assert isinstance(record, control.TokensChanged)
            for token_id in record.removed:
                gone = self.tokens.pop(token_id, None)
                if gone is not None:
                    self.owned[gone.owner] -= 1
            self.owned.update(each.owner for each in record.changed if each.id not in self.tokens)
            self.tokens.update((each.id, each) for each in record.changed)

    def save(self, slot: str) -> object:
        return list(self.users.values()) if slot == "users" else list(self.tokens.values())

    def restore(self, slot: str, saved: msgspec.Raw) -> None:
        if slot == "users":
            self.users = {each.name: each for each in _users.decode(saved)}
        else:
            self.tokens = {each.id: each for each in _tokens.decode(saved)}
            self.owned = Counter(each.owner for each in self.tokens.values())
