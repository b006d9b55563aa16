"""Who asks on the admin port, and whether they are told more than whether the broker works.

Reasons and metrics name topics, groups and users. Where an authorizer is on, or visitors can say who they are, only
those see them who may Describe the cluster. A visitor is the user of a password (RFC 7617, verified against the SCRAM
credential) or of a client's certificate, and else User:ANONYMOUS.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from halfmoon.adapters.tcp.access import CLUSTER, Access
from halfmoon.auth import plain
from halfmoon.auth.errors import AuthenticationError
from halfmoon.auth.principal_rules import PrincipalRules
from halfmoon.auth.principals import ANONYMOUS, Principal, user
from halfmoon.auth.scram import Found, Login, Mechanism
from halfmoon.auth.x500 import subject
from halfmoon.config.settings import Settings

BASIC, MTLS = "basic", "mtls"
AT_ONCE = 2
"""Passwords that are verified at a time: each takes milliseconds of a thread."""
FAILED_S = 0.1
"""After so long a wrong password is answered."""
CHALLENGE = (("WWW-Authenticate", 'Basic realm="halfmoon", charset="UTF-8"'),)


class Users(Protocol):
    def credentials(self, name: str) -> Mapping[Mechanism, Found]: ...

    def unknown_key(self) -> bytes: ...


class NotWhoTheySayError(Exception):
    """A password is wrong, or what should hold one cannot be read."""


class Visitors:
    def __init__(
        self, access: Access | None, users: Users, auth: list[str], principal_rules: str | None,
        *, by_rules: bool, waits: Callable[[float], Any] = asyncio.sleep,
    ) -> None:  # fmt: skip
        """`auth`: by what they may say who they are. `principal_rules`: of the listener's TLS, where clients can show a
        certificate. `by_rules`: access rules say what strangers may; else nothing."""
        self._access = access
        self._by_rules = by_rules
        self._users = users
        self._with_password = BASIC in auth
        # A certificate counts if `auth` says nothing, too: as with Kafka's listeners.
        certificates = principal_rules is not None and (MTLS in auth or not auth)
        self._rules = PrincipalRules(principal_rules) if principal_rules is not None and certificates else None
        self._working = asyncio.Semaphore(AT_ONCE)
        self._waits = waits
        self.results: Counter[tuple[str, str]] = Counter()
        """By mechanism, and `ok` or `failed`."""

    @property
    def challenge(self) -> tuple[tuple[str, str], ...]:
        """Headers for those who should come with a password."""
        return CHALLENGE if self._with_password else ()

    async def may_see(self, authorization: str | None, certificate: bytes | None, host: str) -> bool:
        """`authorization`: the header, if there is one. `certificate`: DER. Raises NotWhoTheySayError."""
        principal = await self._principal(authorization, certificate)
        if principal == ANONYMOUS and not self._by_rules:
            return False
        if self._access is None:
            return True
        return self._access.rights(str(principal), host).allows(("describe", "cluster", CLUSTER))

    async def _principal(self, authorization: str | None, certificate: bytes | None) -> Principal:
        if authorization is not None and self._with_password:
            try:
                login = await self._log_in(authorization)
            except AuthenticationError as error:
                self.results["BASIC", "failed"] += 1
                await self._waits(FAILED_S)
                raise NotWhoTheySayError from error
            self.results["BASIC", "ok"] += 1
            return login.principal
        if certificate is not None and self._rules is not None:
            try:
                return user(self._rules.apply(subject(certificate)))
            except (AuthenticationError, ValueError) as error:
                raise NotWhoTheySayError from error
        return ANONYMOUS

    async def _log_in(self, authorization: str) -> Login:
        """Raises AuthenticationError."""
        scheme, _, encoded = authorization.partition(" ")
        if scheme.lower() != "basic":
            raise AuthenticationError("not the scheme Basic")
        try:
            name, _, password = base64.b64decode(encoded.strip(), validate=True).partition(b":")
        except (binascii.Error, ValueError):
            raise AuthenticationError("not base64") from None
        asked = plain.parse(b"\0".join((b"", name, password)))
        verify = plain.verification(asked, self._users.credentials(asked.name), self._users.unknown_key())
        async with self._working:
            return await asyncio.to_thread(verify)


def visitors_of(users: Users, settings: Settings, access: Access | None) -> Visitors | None:
    """Who is told what on the admin port; None: everybody everything."""
    http = settings.listeners.http
    assert http is not None
    by_rules = settings.security.authorizes(settings.listeners)
    if not http.auth and not by_rules:
        return None
    shows_certificates = http.tls is not None and http.tls.client_auth != "none"
    rules = http.tls.principal_rules if http.tls is not None and shows_certificates else None
    return Visitors(access, users, list(http.auth), rules, by_rules=by_rules)
