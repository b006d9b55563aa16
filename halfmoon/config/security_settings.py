"""`$.security`: who may do what."""

from __future__ import annotations

from typing import Annotated, Literal
from urllib.parse import urlsplit

from msgspec import Meta, field

from halfmoon.config.listener_settings import FilePath, ListenerSettings
from halfmoon.config.sections import Section, SettingError
from halfmoon.config.units import PositiveDuration


class TokenSettings(Section, frozen=True, kw_only=True):
    """Delegation tokens (KIP-48)."""

    enable: bool = True
    lifetime_ms: PositiveDuration = 7 * 86_400_000
    """The longest one may last (Kafka: delegation.token.max.lifetime.ms)."""
    renew_ms: PositiveDuration = 86_400_000
    """So long one lasts without being renewed (Kafka: delegation.token.expiry.time.ms)."""


Word = Annotated[str, Meta(min_length=1)]
OauthAlgorithm = Literal[
    "RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "ES256K", "EdDSA"
]
"""Asymmetric ones alone: with another one who can verify a token can also make it."""


class OauthSettings(Section, frozen=True, kw_only=True):
    """Access tokens of an identity provider (JWT): SASL's OAUTHBEARER, and `bearer` at the admin port."""

    jwks_url: Word | None = None
    """Where the provider publishes its keys; https alone (Kafka: sasl.oauthbearer.jwks.endpoint.url), …"""
    jwks_file: FilePath | None = None
    """… or a file with them."""
    ca: FilePath | None = None
    """PEM file: authorities by which the provider's certificate is verified; None: those of the machine."""
    issuer: Word | None = None
    """The claim `iss` (Kafka: sasl.oauthbearer.expected.issuer)."""
    audience: list[Word] = field(default_factory=list)
    """One of these is in the claim `aud` (Kafka: sasl.oauthbearer.expected.audience)."""
    sub_claim: Word = "sub"
    """The claim that names the user (Kafka: sasl.oauthbearer.sub.claim.name)."""
    algorithms: list[OauthAlgorithm] = field(default_factory=lambda: ["RS256", "ES256"])

    def __post_init__(self) -> None:
        if self.jwks_url is not None and self.jwks_file is not None:
            raise SettingError("jwks_file", "got a file, and jwks_url too, expected one of them")
        if self.jwks_url is not None:
            _check_url(self.jwks_url)
        if not self.algorithms:
            raise SettingError("algorithms", "got none, expected some")
        if self.ca is not None and self.jwks_url is None:
            raise SettingError("ca", "expected together with jwks_url")


def _check_url(url: str) -> None:
    """Whoever can change the keys on their way can make tokens: so TLS, on loopback too. Raises SettingError."""
    try:
        parts = urlsplit(url)
        usable = bool(parts.hostname) and parts.port != 0 and not parts.fragment and url.isascii()
    except ValueError:
        usable = False
    if not usable or any(letter <= " " for letter in url):
        raise SettingError("jwks_url", f"got '{url}', expected https://HOST/PATH")
    if parts.scheme != "https":
        raise SettingError("jwks_url", f"got '{url}', expected https, by which the provider shows who it is")
    if "@" in parts.netloc:
        raise SettingError("jwks_url", "got a password, expected an address without one")


AuditLevel = Literal["denied", "changes", "all"]


class AuditSettings(Section, frozen=True, kw_only=True):
    """Who was refused what, and who has changed what."""

    level: AuditLevel = "denied"
    """`denied`: refusals and failed logins. `changes`: also what was allowed to change something. `all`: also all else
    that was allowed, and logins."""
    topic: bool = True
    """Whether it is written to the topic halfmoon.audit, where clients authenticate."""
    file: FilePath | None = None
    """Where it is written, too."""


class SecuritySettings(Section, frozen=True, kw_only=True):
    authorizer: Literal["auto", "acl", "none"] = "auto"
    """Whether access rules decide; `auto`: where clients of any listener authenticate."""
    super_users: list[str] = field(default_factory=list)
    """Principals such as User:admin, who may do everything (Kafka: super.users)."""
    allow_everyone_if_no_acl_found: bool = False
    """Whether what no rule is about is allowed to everybody (Kafka: allow.everyone.if.no.acl.found)."""
    tokens: TokenSettings = TokenSettings()
    oauth: OauthSettings = OauthSettings()
    audit: AuditSettings = AuditSettings()

    def __post_init__(self) -> None:
        for each in self.super_users:
            kind, colon, name = each.partition(":")
            if not (kind and colon and name):
                raise SettingError("super_users", f"got '{each}', expected principals such as User:admin")

    def authorizes(self, listeners: ListenerSettings) -> bool:
        """Whether access rules decide."""
        if self.authorizer == "auto":
            return any(authenticates(listeners))
        return self.authorizer == "acl"

    def audits_to_topic(self, listeners: ListenerSettings) -> bool:
        """Whether audit writes to its topic: where principals mean something."""
        return self.audit.topic and any(authenticates(listeners))

    def audits(self, listeners: ListenerSettings) -> bool:
        """Whether anything is recorded."""
        return self.audit.file is not None or self.audits_to_topic(listeners)

    def check(self, listeners: ListenerSettings, *, acls: bool) -> None:
        """Raise SettingError where a listener needs what is not there. `acls`: whether access rules are on."""
        if self.authorizes(listeners) and not acls:
            raise SettingError("$.services.acls", "got off, which goes with security.authorizer: none only")
        if not takes_tokens(listeners):
            return
        oauth = self.oauth
        why = "without it OAUTHBEARER, or bearer at the admin port, would take tokens that were made for others"
        if oauth.issuer is None:
            raise SettingError("$.security.oauth.issuer", f"missing: {why}")
        if not oauth.audience:
            raise SettingError("$.security.oauth.audience", f"missing: {why}")
        if oauth.jwks_url is None and oauth.jwks_file is None:
            raise SettingError("$.security.oauth.jwks_url", "missing, and so is jwks_file: no token could be verified")


def authenticates(listeners: ListenerSettings) -> list[bool]:
    """Of each listener, whether its clients say who they are."""
    found = [listener.sasl is not None for listener in listeners.of_kafka]
    found.append(listeners.http is not None and bool(listeners.http.auth))
    found.append(listeners.rocketmq is not None and listeners.rocketmq.auth)
    with_tls = (*listeners.of_kafka, listeners.rocketmq, listeners.http)
    return found + [each is not None and each.tls is not None and each.tls.client_auth != "none" for each in with_tls]


def takes_tokens(listeners: ListenerSettings) -> bool:
    """Whether clients come with access tokens."""
    http = listeners.http
    return any("OAUTHBEARER" in (each.sasl or ()) for each in listeners.of_kafka) or (
        http is not None and "bearer" in http.auth
    )
