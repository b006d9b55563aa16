"""One authentication by SASL, message by message, whatever the mechanism is.

`step` takes a message of the client's and gives the answer: bytes; or a function for a thread that returns them, where
that takes milliseconds; or what has to be waited for before such a function is called. It raises AuthenticationError,
after which the exchange is of no use. Once `login` is set it is over, and the last answer still has to be sent.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple, Protocol

from halfmoon.auth import plain
from halfmoon.auth.errors import AuthenticationError
from halfmoon.auth.scram import Find, Found, Login, Mechanism, ScramServer


class Later(NamedTuple):
    """An answer that waits for somebody else, without a thread."""

    wait: Callable[[Callable[[], None]], None]
    """Calls back once, in the loop, when it is over."""
    answer: Callable[[], bytes]
    """For a thread, then."""


Answer = bytes | Callable[[], bytes] | Later


class Exchange(Protocol):
    @property
    def login(self) -> Login | None: ...

    @property
    def refused(self) -> str:
        """Why the client is not let in, where an answer has told it that; empty: it was told nothing of the kind."""
        ...

    @property
    def claimed(self) -> str:
        """Who the client says that it is: a user's name, or a delegation token's id; empty: not known."""
        ...

    def step(self, message: bytes) -> Answer: ...


class ScramExchange:
    def __init__(self, mechanism: Mechanism, find: Find, nonce: str, unknown_key: bytes) -> None:
        """As of ScramServer."""
        self._server = ScramServer(mechanism, find, nonce, unknown_key)
        self._begun = False
        self.refused = ""

    @property
    def login(self) -> Login | None:
        return self._server.login

    @property
    def claimed(self) -> str:
        return self._server.claimed

    def step(self, message: bytes) -> Answer:
        if self._begun:
            return self._server.final(message)
        self._begun = True
        return self._server.first(message)


class PlainExchange:
    def __init__(self, find: Callable[[str], Mapping[Mechanism, Found]], unknown_key: bytes) -> None:
        """`find`: the credentials of a name, by mechanism. `unknown_key`: as of ScramServer."""
        self._find = find
        self._unknown_key = unknown_key
        self._asked = False
        self.login: Login | None = None
        self.refused = self.claimed = ""

    def step(self, message: bytes) -> Answer:
        if self._asked:
            raise AuthenticationError("PLAIN: a second message")
        self._asked = True
        asked = plain.parse(message)
        self.claimed = asked.name
        verify = plain.verification(asked, self._find(asked.name), self._unknown_key)

        def verified() -> bytes:
            self.login = verify()
            return b""

        return verified
