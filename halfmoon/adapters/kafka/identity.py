"""The part of a connection that knows who its client is: by its certificate, by SASL (`login`), or not at all."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from halfmoon.adapters.kafka.login import Authenticating, Sasl, State
from halfmoon.adapters.tcp import connection as tcp
from halfmoon.auth.errors import AuthenticationError
from halfmoon.auth.principals import ANONYMOUS, OWN, Principal, user
from halfmoon.auth.x500 import subject

if TYPE_CHECKING:
    from halfmoon.adapters.tcp.accepting import Arrival
    from halfmoon.adapters.tcp.access import Access, Rights
    from halfmoon.adapters.tcp.listener import Listener
    from halfmoon.auth.principal_rules import PrincipalRules
    from halfmoon.auth.scram import Login

_SIZE = struct.Struct(">i")


class Local(Struct, frozen=True):
    """Clients of this machine, whom the kernel vouches for."""

    principal: Principal
    vouches: Callable[[Any], bool]
    """Whether the process at the other end of this socket is of that user."""


class Door(Struct):
    """Where clients come in: one of `listeners.kafka`."""

    name: str
    advertise: tuple[str, int] | None = None
    """The address told to clients; None tells each the one it reached us at."""
    sasl: Sasl | None = None
    """None where clients have not to authenticate by SASL."""
    rules: PrincipalRules | None = None
    """What makes a user of the subject of a client's certificate."""
    lets_in: Callable[[Principal], bool] = lambda principal: principal not in OWN
    """Whether a certificate may let this user in."""
    local: Local | None = None
    """Who comes through the administrator's socket."""


class Identified(tcp.Connection):
    """Everything runs in the loop's thread."""

    def __init__(self, listener: Listener, door: Door, access: Access | None, came_as: Arrival | None) -> None:
        super().__init__(listener, came_as)
        self._door = door
        self._access = access
        sasl = door.sasl
        self.login = None if sasl is None else Authenticating(sasl, self)
        self.principal = ANONYMOUS
        self.mechanism = ""
        """By which it has authenticated."""
        self.token_id: str | None = None
        """Of the delegation token by which it has."""
        self._rights: Rights | None = None
        """What it may do; None: everything."""
        self._is_checked = sasl is not None
        """Not every request may be handled now."""
        self._most_bytes = listener.max_request_bytes if sasl is None else sasl.longest_request
        """Of a request."""

    def _request(self, frame: memoryview) -> bool:
        """Handle one request; True if the log may keep slices of it."""
        raise NotImplementedError

    def _begins(self, since_ms: int | None) -> None:
        # First, so that whatever fails below leaves a stranger's rights, and not everything.
        self._find_rights()
        if self._door.advertise:
            self.host, self.port = self._door.advertise
        if self.login is not None:
            self._listener.newcomers.add(self, since_ms)
            return
        local = self._door.local
        if local is not None:
            if not local.vouches(self._transport.get_extra_info("socket")):
                self.abort("it is another user's")
                return
            self.principal, self.mechanism = local.principal, "LOCAL"
        certificate = None if self._door.rules is None else self._certificate()
        if certificate is not None:
            self._is_who_it_shows(certificate)
        self._find_rights()

    def _is_who_it_shows(self, certificate: bytes) -> None:
        """Rule: DefaultKafkaPrincipalBuilder."""
        assert self._door.rules is not None
        try:
            principal = user(self._door.rules.apply(subject(certificate)))
        except (AuthenticationError, ValueError) as error:
            self._close(f"its certificate: {error}")
            return
        if not self._door.lets_in(principal):
            self._close(f"its certificate: {principal} is disabled, or the broker itself")
            return
        self.principal, self.mechanism = principal, "TLS"

    def _find_rights(self) -> None:
        access = self._access
        self._rights = None if access is None else access.rights(str(self.principal), self.peer_host)

    def _checked(self, frame: memoryview) -> bool:
        """As `_request`, where not every request may be handled."""
        login = self.login
        assert login is not None
        if login.state is State.RAW:
            login.step(bytes(frame), self._send_token)
            return False
        refusal = login.refusal(int.from_bytes(frame[:2], "big", signed=True))
        if refusal:
            self._close(refusal)
            return False
        return self._request(frame)

    def _is_token(self, size: int) -> bool:
        """Whether tokens come without a request around them: they may be shorter than its header."""
        return size >= 0 and self.login is not None and self.login.state is State.RAW

    def _send_token(self, token: bytes | None) -> None:
        if token is not None:
            self._out.append(_SIZE.pack(len(token)) + token)
            self._out_bytes += 4 + len(token)
            if not self._handling:
                self._flush()

    # What `login` tells (login.Client).

    def let_in(self, login: Login, mechanism: str) -> None:
        if self.login is None:
            return  # it has left meanwhile
        self._listener.newcomers.remove(self)
        self.principal, self.mechanism, self.token_id = login.principal, mechanism, login.token_id
        self._find_rights()
        self._most_bytes = self._listener.max_request_bytes
        self._is_checked = self.login.expires_mono_ms is not None

    def close_later(self, delay_ms: float, first: Callable[[], object], reason: str) -> None:
        def end() -> None:
            first()
            self._close(reason)

        self._listener.loop.call_later(delay_ms / 1000, end)

    def go_on(self) -> None:
        raise NotImplementedError
