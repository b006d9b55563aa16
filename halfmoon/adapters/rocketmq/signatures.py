"""Whose requests a listener takes: those that a user has signed (auth/access_key.py).

Every request is looked at by itself; nothing that was found out before counts. So a user who is disabled, deleted or
given another secret is refused with the next request, and connections on which he has signed one are closed: they may
hold requests of his that wait, and the broker asks and tells them things.

For a name without a secret the same work is done, with a secret that nobody has: whether a user exists is not to be
found out. RocketMQ says it in its remark (DefaultAuthenticationHandler).
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable
from typing import NamedTuple, Protocol

from halfmoon.auth.access_key import ACCESS_KEY, is_signed
from halfmoon.errors import BrokerError
from halfmoon.remoting.command import Command

logger = logging.getLogger("halfmoon.auth")

LARGE_BODY_BYTES = 1 << 20
"""A larger body is hashed in a thread: 0.7 ms for each MiB."""
REFUSED_MS = 100
"""Who is not let in hears of it after so long, and up to as much more by chance; nothing else of his connection is
handled meanwhile."""
LOGGED = 50
"""Failures that are logged in …"""
LOGGED_MS = 5_000
"""… so long."""


class Users(Protocol):
    def secret(self, name: str) -> str | None:
        """None where the user has none, is disabled, or does not exist. Raises BrokerError."""
        ...

    def unknown_key(self) -> bytes: ...


class Signer(Protocol):
    """A connection on which users have signed requests."""

    def abort(self, reason: str) -> None: ...


class Claim(NamedTuple):
    """Who somebody says that he is, and what shows it."""

    name: str
    secret: str
    """Of that user; where there is none, one that nobody has."""
    reason: str
    """Why he cannot be let in, whatever he signs; empty: he can."""
    command: Command

    @property
    def why(self) -> str:
        """Why it is refused."""
        return self.reason or "the signature is wrong"

    def is_right(self) -> bool:
        """May be called in any thread."""
        command = self.command
        return is_signed(self.secret, command.fields, command.body, command.version) and not self.reason


class Signatures:
    """What all connections of a listener share."""

    def __init__(self, users: Users, mono_ms: Callable[[], int], jitter: Callable[[], float]) -> None:
        """`jitter`: from 0 to 1."""
        self._users = users
        self._mono_ms = mono_ms
        self._jitter = jitter
        self.results: Counter[str] = Counter()
        """`ok`: users on connections on which they had not signed yet; `failed`: requests."""
        self._signers: dict[str, dict[Signer, str]] = {}
        """By the user's name, with the secret of the last request."""
        self._logged = 0
        self._logged_since_ms = mono_ms()

    def claim(self, command: Command) -> Claim:
        name = command.fields.get(ACCESS_KEY, "")
        secret, reason = None, "" if name else "the request has no AccessKey"
        try:
            secret = self._users.secret(name)
        except BrokerError as error:
            reason = error.message
        if secret is None:
            return Claim(name, self._users.unknown_key().hex(), reason or "no secret that counts", command)
        return Claim(name, secret, reason, command)

    def still_counts(self, claim: Claim) -> bool:
        """Whether the secret of a claim that was right is the user's now, too: others have had their turn."""
        try:
            return self._users.secret(claim.name) == claim.secret
        except BrokerError:
            return False

    def signed(self, signer: Signer, claim: Claim) -> None:
        """A request was found right."""
        signers = self._signers.setdefault(claim.name, {})
        if signer not in signers:
            self.results["ok"] += 1
        signers[signer] = claim.secret

    def gone(self, signer: Signer, name: str) -> None:
        """The connection on which the user has signed is no more."""
        signers = self._signers.get(name)
        if signers is not None:
            signers.pop(signer, None)
            if not signers:
                del self._signers[name]

    def failed(self, peer: str, client: str, claim: Claim) -> float:
        """A request is refused; after how many ms its client is to hear of it."""
        self.results["failed"] += 1
        now_ms = self._mono_ms()
        if now_ms - self._logged_since_ms >= LOGGED_MS:
            if self._logged > LOGGED:
                logger.warning("event=authentications_failed not_logged=%d", self._logged - LOGGED)
            self._logged, self._logged_since_ms = 0, now_ms
        self._logged += 1
        if self._logged <= LOGGED:
            logger.warning(
                "event=authentication_failed peer=%s client=%s user=%s code=%d reason=%s",
                peer, client, claim.name[:100], claim.command.code, claim.why,
            )  # fmt: skip
        return REFUSED_MS * (1 + self._jitter())

    def user_changed(self, name: str, change: object) -> None:
        """As a listener of Users."""
        signers = self._signers.get(name)
        if not signers:
            return
        try:
            secret = self._users.secret(name)
        except BrokerError:
            secret = None
        reason = f"user '{name}' has {'no' if secret is None else 'another'} secret that counts now"
        for signer, by in list(signers.items()):
            if by != secret:
                signer.abort(reason)
