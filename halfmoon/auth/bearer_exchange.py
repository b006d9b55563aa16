"""One authentication by OAUTHBEARER (RFC 7628).

    client: its token              server: nothing, and it is let in
    client: its token              server: a JSON object that says no      client: ^A              server: fails

Rules: Kafka's OAuthBearerSaslServer (4.3.1). As there, a malformed message and an authorization id of somebody else
fail at once. Otherwise than there, nothing may follow a token that was refused but the end.

A token of an unknown key waits until the provider's keys were asked for, if they may be: keys change, and to most
clients a failure is final.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from halfmoon.auth.errors import AuthenticationError
from halfmoon.auth.exchange import Answer, Later
from halfmoon.auth.oauth import REFUSED, Bearer, RefusedTokenError, UnknownKeyError, parse
from halfmoon.auth.scram import Login


class Verifier(Protocol):
    """Who knows the provider's keys."""

    def log_in(self, asked: Bearer) -> Login:
        """Raises AuthenticationError, UnknownKeyError. From any thread."""
        ...

    def fetches_keys(self) -> bool:
        """Whether newer keys are on their way; they are asked for, if it is not too soon for that. In the loop."""
        ...

    def when_fetched(self, then: Callable[[], None]) -> None:
        """Call `then` once, in the loop, when the keys have come, or will not come."""
        ...


class BearerExchange:
    def __init__(self, verifier: Verifier) -> None:
        self._verifier = verifier
        self.login: Login | None = None
        self.refused = ""
        self.claimed = ""
        """A token that is not accepted says nothing."""

    def step(self, message: bytes) -> Answer:
        if self.refused:
            raise AuthenticationError(self.refused)
        asked = parse(message)
        try:
            self.login = self._verifier.log_in(asked)
        except UnknownKeyError as error:
            if self._verifier.fetches_keys():
                waiting = asked._replace(extensions={})  # they may be long, and have no effect
                return Later(self._verifier.when_fetched, lambda: self._look_again(waiting))
            return self._refuse(error)
        except RefusedTokenError as error:
            return self._refuse(error)
        return b""

    def _look_again(self, asked: Bearer) -> bytes:
        """Raises AuthenticationError."""
        try:
            self.login = self._verifier.log_in(asked)
        except RefusedTokenError as error:
            return self._refuse(error)
        return b""

    def _refuse(self, error: AuthenticationError) -> bytes:
        self.refused = str(error)
        return REFUSED
