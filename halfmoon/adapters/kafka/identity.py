"""The part of a connection that knows who its client is: by its certificate, by SASL (`login`), or not at all."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct, structs

from halfmoon.adapters.kafka.login import Authenticating, Sasl, State
from halfmoon.adapters.tcp import connection as tcp
from halfmoon.auth.errors import AuthenticationError
from halfmoon.auth.principals import ANONYMOUS, Principal
from halfmoon.core.catalog.owners import OtherNode
from halfmoon.services.audit.lines import TLS, Use, Who

if TYPE_CHECKING:
    from halfmoon.adapters.tcp.accepting import Arrival
    from halfmoon.adapters.tcp.access import Access, Rights
    from halfmoon.adapters.tcp.listener import Listener
    from halfmoon.auth.principal_rules import PrincipalRules
    from halfmoon.auth.scram import Login

LOCAL: Final = "LOCAL"
"""How somebody has authenticated, beside the names of SASL's mechanisms."""
_SIZE: Final = struct.Struct(">i")


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
    local: Local | None = None
    """Who comes through the administrator's socket."""
    port: int | None = None
    """Told in that address's place where this process has a port of its own beside those that several share."""
    others: Mapping[int, tuple[str | None, int]] | None = None
    """Node id → where the other nodes listen like this, if that is not what they are known by. No host: the one that
    the client has reached us at."""


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
        if self._door.port is not None:
            self.port = self._door.port
        if self.login is not None:
            self._listener.newcomers.add(self, since_ms)
            return
        local = self._door.local
        if local is not None:
            if not local.vouches(self._transport.get_extra_info("socket")):
                self.not_let_in(LOCAL, "the process is of another user")
                self.abort("it is another user's")
                return
            self.principal, self.mechanism = local.principal, LOCAL
            self._is_let_in()
        certificate = None if self._door.rules is None else self._certificate()
        if certificate is not None:
            self._is_who_it_shows(certificate)
        self._find_rights()

    def _is_who_it_shows(self, certificate: bytes) -> None:
        assert self._door.rules is not None
        try:
            self.principal = self._door.rules.principal(certificate)
        except AuthenticationError as error:
            self.not_let_in(TLS, str(error))
            self._close(f"its certificate: {error}")
        else:
            self.mechanism = TLS
            self._is_let_in()

    def address_of(self, node: OtherNode) -> tuple[str, int]:
        """As Peer says it."""
        others = self._door.others
        found = None if others is None else others.get(node.node_id)
        if found is None:
            return node.kafka
        host, port = found
        return host or self.host, port

    def _find_rights(self) -> None:
        access = self._access
        if access is not None:
            self._rights = access.rights(str(self.principal), self.peer_host, self._refused)

    def _forget(self) -> None:
        """It is gone: what knows it is not to be known by it."""
        self.login = None
        if self._access is not None:
            self._rights = self._access.rights(str(self.principal), self.peer_host)

    # Audit.

    def who(self) -> Who:
        """As audit records it. A socket of the file system has no peer's address."""
        peer = "" if self._door.local is not None else self.peer
        return Who(self._door.name, peer, str(self.principal), self.mechanism, self._who())

    def _refused(self, uses: tuple[Use, ...]) -> None:
        audit = self._listener.audit
        if audit is not None:
            audit.denied(self.who(), self.peer_host, self._doing, uses)

    def not_let_in(self, mechanism: str, reason: str, claimed: str = "") -> None:
        """As login.Client says it."""
        audit = self._listener.audit
        if audit is not None:
            audit.login_failed(structs.replace(self.who(), mechanism=mechanism), self.peer_host, reason, claimed)

    def _is_let_in(self) -> None:
        audit = self._listener.audit
        if audit is not None:
            audit.logged_in(self.who())

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
        self._is_let_in()

    def close_later(self, delay_ms: float, first: Callable[[], object], reason: str) -> None:
        def end() -> None:
            first()
            self._close(reason)

        self._listener.loop.call_later(delay_ms / 1000, end)

    def go_on(self) -> None:
        raise NotImplementedError
