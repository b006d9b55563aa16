"""SASL's mechanisms, as a listener offers them: what begins an exchange of each."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Protocol

from halfmoon.auth.errors import AuthenticationError
from halfmoon.auth.exchange import Exchange, PlainExchange, ScramExchange
from halfmoon.auth.scram import MECHANISMS, Found, Mechanism
from halfmoon.errors import BrokerError

if TYPE_CHECKING:
    from halfmoon.auth.bearer_exchange import Verifier


class Users(Protocol):
    def credentials(self, name: str) -> Mapping[Mechanism, Found]: ...
    def unknown_key(self) -> bytes: ...


class Tokens(Protocol):
    def find(self, mechanism: Mechanism, token: str) -> Found | None:
        """Raises BrokerError."""
        ...


def beginner(users: Users, tokens: Tokens, verifier: Verifier | None = None) -> Callable[[str], Exchange]:
    """Begins an exchange of the mechanism that is asked for. `verifier`: of access tokens, where they are taken."""

    def begin(name: str) -> Exchange:
        if name == "PLAIN":
            return PlainExchange(users.credentials, users.unknown_key())
        if name == "OAUTHBEARER":
            from halfmoon.auth.bearer_exchange import BearerExchange  # few need it

            assert verifier is not None
            return BearerExchange(verifier)
        mechanism = MECHANISMS[name]

        def find(asked: str, is_token: bool) -> Found | None:
            if not is_token:
                return users.credentials(asked).get(mechanism)
            try:
                return tokens.find(mechanism, asked)
            except BrokerError as error:
                raise AuthenticationError(error.message) from error

        return ScramExchange(mechanism, find, secrets.token_urlsafe(24), users.unknown_key())

    return begin
