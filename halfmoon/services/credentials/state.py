"""Which users and delegation tokens there are, as the log says it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import ClassVar

import msgspec

from halfmoon.core.catalog.section import CatalogSection
from halfmoon.schema import control
from halfmoon.schema.control import DelegationToken, User
from halfmoon.services.common.encoded import EncodedArray

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
        self._encoded_users: EncodedArray[str] = EncodedArray()
        self._encoded_tokens: EncodedArray[str] = EncodedArray()

    def apply(self, record: control.Record) -> None:
        if isinstance(record, control.UsersChanged):
            for name in record.removed:
                self.users.pop(name, None)
                self._encoded_users.drop(name)
            self._set_users(record.changed)
        else:
            assert isinstance(record, control.TokensChanged)
            for token_id in record.removed:
                gone = self.tokens.pop(token_id, None)
                if gone is not None:
                    self._encoded_tokens.drop(token_id)
                    self.owned[gone.owner] -= 1
            self._set_tokens(record.changed)

    def _set_users(self, users: Iterable[User]) -> None:
        for user in users:
            self.users[user.name] = user
            self._encoded_users.set(user.name, user)

    def _set_tokens(self, tokens: Iterable[DelegationToken]) -> None:
        for token in tokens:
            self.owned[token.owner] += token.id not in self.tokens
            self.tokens[token.id] = token
            self._encoded_tokens.set(token.id, token)

    def save(self, slot: str) -> object:
        return self._encoded_users.raw() if slot == "users" else self._encoded_tokens.raw()

    def restore(self, slot: str, saved: msgspec.Raw) -> None:
        if slot == "users":
            self.users, self._encoded_users = {}, EncodedArray()
            self._set_users(_users.decode(saved))
        else:
            self.tokens, self.owned, self._encoded_tokens = {}, Counter(), EncodedArray()
            self._set_tokens(_tokens.decode(saved))
