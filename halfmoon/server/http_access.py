"""Who asks on the admin port, and whether they are told more than whether the broker works.

Reasons and metrics name topics, groups and users. Where an authorizer is on, or visitors can say who they are, only
those see them who may Describe the cluster. A visitor is the user of a password (RFC 7617, verified against the SCRAM
credential), of an access token (RFC 6750) or of a client's certificate, and else User:ANONYMOUS.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from halfmoon.adapters.tcp.access import CLUSTER, Access
from halfmoon.auth import plain
from halfmoon.auth.errors import AuthenticationError
from halfmoon.auth.principal_rules import PrincipalRules
from halfmoon.auth.principals import ANONYMOUS, Principal
from halfmoon.auth.scram import Found, Login, Mechanism
from halfmoon.config.settings import Settings
from halfmoon.services.audit.lines import TLS, Who
from halfmoon.services.audit.service import Audit

if TYPE_CHECKING:
    from halfmoon.auth.bearer_exchange import Verifier

BASIC, BEARER, MTLS = "basic", "bearer", "mtls"
LISTENER = "http"
AT_ONCE = 2
"""Passwords that are verified at a time: each takes milliseconds of a thread."""
FAILED_S = 0.1
"""After so long a wrong password is answered."""
_SEES = "describe", "cluster", CLUSTER
CHALLENGES = {BASIC: 'Basic realm="halfmoon", charset="UTF-8"', BEARER: 'Bearer realm="halfmoon"'}


class Users(Protocol):
    def credentials(self, name: str) -> Mapping[Mechanism, Found]: ...

    def unknown_key(self) -> bytes: ...

    def lets_in(self, principal: Principal) -> bool: ...


class NotWhoTheySayError(Exception):
    """A password is wrong, a token is not accepted, or what should hold one cannot be read."""


class Visitors:
    def __init__(
        self, access: Access | None, users: Users, auth: list[str], principal_rules: str | None,
        *, by_rules: bool, verifier: Verifier | None = None, waits: Callable[[float], Any] = asyncio.sleep,
        audit: Audit | None = None, is_stale: Callable[[], bool] = lambda: False,
    ) -> None:  # fmt: skip
        """`auth`: by what they may say who they are. `principal_rules`: of the listener's TLS, where clients can show a
        certificate. `by_rules`: access rules say what strangers may; else nothing. `verifier`: of access tokens, where
        `auth` has them. `is_stale`: whether what is known of users and rights may be of long ago."""
        self._access = access
        self._is_stale = is_stale
        self._by_rules = by_rules
        self._users = users
        self._ways: dict[str, Callable[[str], Awaitable[Login]]] = {}
        """By their schemes: what stands behind the scheme → who it is."""
        if BASIC in auth:
            self._ways[BASIC] = self._by_password
        if BEARER in auth:
            self._ways[BEARER] = self._by_token
        self._verifier = verifier
        # A certificate counts if `auth` says nothing, too: as with Kafka's listeners.
        certificates = principal_rules is not None and (MTLS in auth or not auth)
        self._rules = None
        if principal_rules is not None and certificates:
            self._rules = PrincipalRules(principal_rules, users.lets_in)
        self._working = asyncio.Semaphore(AT_ONCE)
        self._waits = waits
        self.audit = audit
        """None where nothing is recorded."""
        self.results: Counter[tuple[str, str]] = Counter()
        """By mechanism, and `ok` or `failed`."""

    @property
    def challenge(self) -> tuple[tuple[str, str], ...]:
        """Headers for those who should say who they are."""
        return tuple(("WWW-Authenticate", CHALLENGES[scheme]) for scheme in self._ways)

    async def may_see(
        self, authorization: str | None, certificate: bytes | None, host: str, wants: str | None = None
    ) -> bool:
        """`authorization`: the header, if there is one. `certificate`: DER. `wants`: what is refused to whom it is not
        shown; None: there is something for everybody. Raises NotWhoTheySayError."""
        principal, mechanism = await self._principal(authorization, certificate, host)
        if self._is_stale() or (principal == ANONYMOUS and not self._by_rules):
            return False
        if self._access is None:
            return True
        if wants is None:
            return self._access.rights(str(principal), host).allows(_SEES)
        audit, who = self.audit, Who(LISTENER, host, str(principal), mechanism)
        refused = None if audit is None else lambda uses: audit.denied(who, host, wants, uses)
        is_allowed = self._access.rights(str(principal), host, refused).demands((_SEES,))
        if is_allowed and audit is not None and audit.records_all:
            audit.allowed(who, host, wants, (_SEES,))
        return is_allowed

    def _failed(self, mechanism: str, host: str, error: Exception) -> None:
        if self.audit is not None:
            self.audit.login_failed(Who(LISTENER, host, str(ANONYMOUS), mechanism), host, str(error))

    async def _principal(
        self, authorization: str | None, certificate: bytes | None, host: str
    ) -> tuple[Principal, str]:
        """Who it is, and by which mechanism. Raises NotWhoTheySayError."""
        if authorization is not None and self._ways:
            scheme, _, given = authorization.partition(" ")
            scheme = scheme.lower()
            way = self._ways.get(scheme)
            mechanism = (scheme if way is not None else next(iter(self._ways))).upper()
            try:
                if way is None:
                    raise AuthenticationError("an unknown scheme")
                login = await way(given.strip())
            except AuthenticationError as error:
                self.results[mechanism, "failed"] += 1
                self._failed(mechanism, host, error)
                await self._waits(FAILED_S)
                raise NotWhoTheySayError from error
            self.results[mechanism, "ok"] += 1
            self._is_let_in(login.principal, mechanism, host)
            return login.principal, mechanism
        if certificate is not None and self._rules is not None:
            try:
                principal = self._rules.principal(certificate)
            except AuthenticationError as error:
                self._failed(TLS, host, error)
                raise NotWhoTheySayError from error
            self._is_let_in(principal, TLS, host)
            return principal, TLS
        return ANONYMOUS, ""

    def _is_let_in(self, principal: Principal, mechanism: str, host: str) -> None:
        if self.audit is not None:
            self.audit.logged_in(Who(LISTENER, host, str(principal), mechanism))

    async def _by_token(self, token: str) -> Login:
        """Raises AuthenticationError."""
        from halfmoon.auth.oauth import Bearer, UnknownKeyError

        verifier = self._verifier
        assert verifier is not None
        asked = Bearer(token, "", {})
        try:
            return verifier.log_in(asked)
        except UnknownKeyError:
            if not verifier.fetches_keys():
                raise
        fetched = asyncio.Event()
        verifier.when_fetched(fetched.set)
        await fetched.wait()
        return verifier.log_in(asked)

    async def _by_password(self, encoded: str) -> Login:
        """Raises AuthenticationError."""
        try:
            name, _, password = base64.b64decode(encoded, validate=True).partition(b":")
        except (binascii.Error, ValueError):
            raise AuthenticationError("not base64") from None
        asked = plain.parse(b"\0".join((b"", name, password)))
        verify = plain.verification(asked, self._users.credentials(asked.name), self._users.unknown_key())
        async with self._working:
            return await asyncio.to_thread(verify)


def visitors_of(
    users: Users, settings: Settings, access: Access | None, verifier: Verifier | None, audit: Audit | None,
    is_stale: Callable[[], bool] = lambda: False,
) -> Visitors | None:  # fmt: skip
    """Who is told what on the admin port; None: everybody everything. `verifier`: of access tokens, where they are
    taken. `audit`: None where nothing is recorded. `is_stale`: as of Visitors."""
    http = settings.listeners.http
    assert http is not None
    by_rules = settings.security.authorizes(settings.listeners)
    if not http.auth and not by_rules:
        return None
    shows_certificates = http.tls is not None and http.tls.client_auth != "none"
    rules = http.tls.principal_rules if http.tls is not None and shows_certificates else None
    return Visitors(
        access, users, list(http.auth), rules, by_rules=by_rules, verifier=verifier, audit=audit, is_stale=is_stale
    )
