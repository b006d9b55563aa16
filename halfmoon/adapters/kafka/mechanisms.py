"""SASL's mechanisms, as a listener offers them: what begins an exchange of each."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from typing import Protocol

from halfmoon.auth.exchange import Exchange, PlainExchange, ScramExchange
from halfmoon.auth.scram import MECHANISMS, Find, Found, Mechanism


class Credentials(Protocol):
    """What users have. Called in the loop."""

    unknown_key: bytes
    """As of ScramServer."""

    def finder(self, mechanism: Mechanism) -> Find: ...

    def of_user(self, name: str) -> Mapping[Mechanism, Found]: ...


def beginner(credentials: Credentials) -> Callable[[str], Exchange]:
    """Begins an exchange of the mechanism that is asked for."""

    def begin(name: str) -> Exchange:
        if name == "PLAIN":
            return PlainExchange(credentials.of_user, credentials.unknown_key)
        mechanism = MECHANISMS[name]
        nonce = secrets.token_urlsafe(24)
        return ScramExchange(mechanism, credentials.finder(mechanism), nonce, credentials.unknown_key)

    return begin
