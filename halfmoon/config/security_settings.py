"""`$.security`: who may do what."""

from __future__ import annotations

from typing import Literal

from msgspec import field

from halfmoon.config.listener_settings import ListenerSettings
from halfmoon.config.sections import Section, SettingError
from halfmoon.config.units import PositiveDuration


class TokenSettings(Section, frozen=True, kw_only=True):
    """Delegation tokens (KIP-48)."""

    enable: bool = True
    lifetime_ms: PositiveDuration = 7 * 86_400_000
    """The longest one may last (Kafka: delegation.token.max.lifetime.ms)."""
    renew_ms: PositiveDuration = 86_400_000
    """So long one lasts without being renewed (Kafka: delegation.token.expiry.time.ms)."""


class SecuritySettings(Section, frozen=True, kw_only=True):
    authorizer: Literal["auto", "acl", "none"] = "auto"
    """Whether access rules decide; `auto`: where clients of any listener authenticate."""
    super_users: list[str] = field(default_factory=list)
    """Principals such as User:admin, who may do everything (Kafka: super.users)."""
    allow_everyone_if_no_acl_found: bool = False
    """Whether what no rule is about is allowed to everybody (Kafka: allow.everyone.if.no.acl.found)."""
    tokens: TokenSettings = TokenSettings()

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


def authenticates(listeners: ListenerSettings) -> list[bool]:
    """Of each listener, whether its clients say who they are."""
    found = [listener.sasl is not None for listener in listeners.of_kafka]
    found.append(listeners.http is not None and bool(listeners.http.auth))
    found.append(listeners.rocketmq is not None and listeners.rocketmq.auth)
    with_tls = (*listeners.of_kafka, listeners.rocketmq, listeners.http)
    return found + [each is not None and each.tls is not None and each.tls.client_auth != "none" for each in with_tls]
