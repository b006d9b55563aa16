"""The part of a connection that knows who its client is: by the signature of each request (`signatures`), by its
certificate (`rules`), or not at all. Where requests are signed, the signature alone says it.

A request whose signature takes long to look at, or is wrong, keeps those behind it waiting: they are handled in their
order, and guessing takes its time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from halfmoon.adapters.rocketmq.answers import Answer
from halfmoon.adapters.rocketmq.signatures import LARGE_BODY_BYTES, Claim, Signatures
from halfmoon.adapters.tcp import connection as tcp
from halfmoon.auth.errors import AuthenticationError
from halfmoon.auth.principals import ANONYMOUS, Principal, user
from halfmoon.remoting.codes import Code
from halfmoon.services.audit.lines import TLS, Who

if TYPE_CHECKING:
    from halfmoon.adapters.tcp.accepting import Arrival
    from halfmoon.adapters.tcp.buffers import ReceiveBuffer
    from halfmoon.adapters.tcp.listener import Listener
    from halfmoon.auth.principal_rules import PrincipalRules
    from halfmoon.remoting.command import Command

SIGNATURE: Final = "SIGNATURE"
"""How its clients say who they are."""
NOT_LET_IN: Final = Answer(Code.NO_PERMISSION, remark="authentication failed: the request is not signed by a user")
"""The same whatever the reason, with RocketMQ's code (AuthenticationPipeline)."""


class Identified(tcp.Connection):
    """Everything runs in the loop's thread."""

    def __init__(
        self,
        listener: Listener,
        signatures: Signatures | None,
        came_as: Arrival | None,
        rules: PrincipalRules | None = None,
    ) -> None:
        """`signatures`: None where nobody has to sign. `rules`: what makes a user of the subject of a certificate that
        is shown; None: nothing does."""
        super().__init__(listener, came_as)
        self._rules = rules
        self.principal = ANONYMOUS
        """Who has sent the last request."""
        self._signatures = signatures
        self._users: dict[str, Principal] = {}
        """Who have signed requests on it."""
        self._is_looked_at = False
        """A signature is being looked at, or was wrong: nothing else is handled meanwhile."""

    # What the whole connection does.

    def reply(self, command: Command, answer: Answer) -> None:
        raise NotImplementedError

    def awaits(self, more: int) -> None:
        """So many more of its requests wait (or fewer)."""
        raise NotImplementedError

    def _port_name(self) -> str:
        """Of the listener."""
        raise NotImplementedError

    # Who it is.

    def _begins(self, since_ms: int | None) -> None:
        if self._signatures is not None:
            self._listener.newcomers.add(self, since_ms)
            return
        certificate = None if self._rules is None else self._certificate()
        if certificate is not None:
            self._is_who_it_shows(certificate)

    def _is_who_it_shows(self, certificate: bytes) -> None:
        assert self._rules is not None
        audit = self._listener.audit
        try:
            self.principal = self._rules.principal(certificate)
        except AuthenticationError as error:
            if audit is not None:
                audit.login_failed(self.who(ANONYMOUS), self.peer_host, str(error))
            self._close(f"its certificate: {error}")
        else:
            if audit is not None:
                audit.logged_in(self.who(self.principal))

    def _forget_users(self) -> None:
        if self._signatures is not None:
            for name in self._users:
                self._signatures.gone(self, name)

    def _is_signed(self, command: Command, go_on: Callable[[], object]) -> bool:
        """Whether the request may be handled now. Else it is refused, or `go_on` is called when it may be."""
        signatures = self._signatures
        if signatures is None:
            return True
        claim = signatures.claim(command)
        if len(command.body) > LARGE_BODY_BYTES:
            self._look_in_thread(signatures, claim, go_on)
            return False
        if not claim.is_right():
            self._turn_away(signatures, claim)
            return False
        self._let_in(signatures, claim)
        return True

    def _look_in_thread(self, signatures: Signatures, claim: Claim, go_on: Callable[[], object]) -> None:
        kept = self._keep_buffer()
        self._wait(True)

        def looked(right: object, error: BaseException | None) -> None:
            self._wait(False)
            if self._closed:
                pass
            elif error is None and right and signatures.still_counts(claim):
                self._let_in(signatures, claim)
                go_on()
            else:
                self._turn_away(signatures, claim)
            self._pool.give_back(kept)

        self.in_thread(claim.is_right, looked)

    def _keep_buffer(self) -> ReceiveBuffer:
        """What the request lies in, so that nothing else is received there meanwhile. One of this size has a buffer of
        its own (LARGE_BODY_BYTES is more than a chunk)."""
        own = self._own
        assert own is not None
        self._own_retained = True
        return own

    def _let_in(self, signatures: Signatures, claim: Claim) -> None:
        name = claim.name
        principal = self._users.get(name)
        if principal is None:
            if not self._users:
                self._listener.newcomers.remove(self)
            principal = self._users[name] = user(name)
            if self._listener.audit is not None:
                self._listener.audit.logged_in(self.who(principal))
        signatures.signed(self, claim)
        self.principal = principal

    def who(self, principal: Principal) -> Who:
        """As audit records it."""
        mechanism = TLS if self._rules is not None else "" if self._signatures is None else SIGNATURE
        return Who(self._port_name(), self.peer, str(principal), mechanism, self._who())

    def _turn_away(self, signatures: Signatures, claim: Claim) -> None:
        audit = self._listener.audit
        if audit is not None:
            claimed = claim.name and str(user(claim.name))
            audit.login_failed(self.who(ANONYMOUS), self.peer_host, claim.why, claimed)
        delay_ms = signatures.failed(self.peer, self._who(), claim)
        command = claim.command
        command.fields, command.body, command.remark = {}, b"", None
        self._wait(True)

        def end() -> None:
            self._wait(False)
            self.reply(command, NOT_LET_IN)

        self._listener.loop.call_later(delay_ms / 1000, end)

    def _wait(self, waits: bool) -> None:
        """Nothing else is handled from now on; or it is again."""
        self._is_looked_at = waits
        self.awaits(1 if waits else -1)
        if not waits and self._reading_paused:
            self._resume_soon()
