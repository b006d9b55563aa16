"""What `halfmoon acl check` and `halfmoon tls reload` ask, and the answers: plain records, on the wire as JSON (API
18504). `SecurityAnswers` is what a node offers who answers them."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

from halfmoon.schema.control import AclRule


class Decide(Struct, frozen=True, tag="decide", forbid_unknown_fields=True):
    """May this principal, from this host, do this? Words are Kafka's AclOperation and ResourceType in lower case."""

    principal: str
    host: str
    operation: str
    resource_type: str
    name: str


class ReloadTls(Struct, frozen=True, tag="reload_tls", forbid_unknown_fields=True):
    """Read the certificates of all listeners again."""


Question = Decide | ReloadTls


class Decided(Struct, frozen=True):
    allowed: bool
    reason: str
    rule: AclRule | None = None
    """The one that decides, where a rule does."""


class ReadTls(Struct, frozen=True):
    """What has become of a listener's files."""

    listener: str
    expires_ms: int
    """Of the certificate that is in use now, Unix ms."""
    problem: str = ""
    """Why the files were not taken; empty: they were."""


class Answer(Struct, frozen=True, omit_defaults=True):
    decided: Decided | None = None
    listeners: tuple[ReadTls, ...] | None = None
    fault: str = ""
    message: str = ""


class SecurityAnswers(Struct, frozen=True):
    decide: Callable[[Decide], Decided]
    """Raises BrokerError."""
    reload_tls: Callable[[], tuple[ReadTls, ...]]
