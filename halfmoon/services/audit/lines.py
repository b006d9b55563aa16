"""The lines of the audit log: what happened, as a JSON object each.

    access     a client was refused something, or allowed it
    login      somebody was not let in, or was
    left_out   so many refusals of one who is refused all the time were not written

Members that have nothing to say are left out. Names are what clients choose: none is longer than `LONGEST_NAME`, and
what does not print is an escape, in the text of the member and not only in its JSON, so that a reader who decodes it
has one line, too. Nothing here is a secret: no password, token, signature, record or value of a configuration.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Literal

import msgspec
from msgspec import Struct

from halfmoon.services.common.printing import printable

LONGEST_NAME = 255
"""Characters of each name and reason."""

TLS = "TLS"
"""Mechanism: a client's certificate; or its handshake, which failed."""

Decision = Literal["allowed", "denied"]
Use = tuple[str, str, str | None]
"""Operation, type of the resource, and its name; None: any of the type."""


class Who(Struct, frozen=True):
    """Whoever asks, as far as the broker knows."""

    listener: str
    peer: str
    """Address, and port where it is known."""
    principal: str
    """Such as User:alice."""
    mechanism: str = ""
    """By which it has authenticated; empty: it has not."""
    client_id: str = ""


class _Line(Struct, frozen=True, omit_defaults=True, tag_field="event"):
    time: str
    """ISO 8601, UTC, milliseconds."""
    decision: Decision
    listener: str = ""
    peer: str = ""
    principal: str = ""
    mechanism: str = ""
    client_id: str = ""


class _Access(_Line, frozen=True, omit_defaults=True, tag="access"):
    api: str = ""
    operation: str = ""
    resource_type: str = ""
    resource: str = ""
    """Left out where any of the type would do."""
    reason: str = ""
    rule: str = ""
    """The one that decides, where a rule does."""


class _Login(_Line, frozen=True, omit_defaults=True, tag="login"):
    claimed: str = ""
    """The principal that a client said to be, and was not let in as."""
    reason: str = ""


class _LeftOut(Struct, frozen=True, tag_field="event", tag="left_out"):
    time: str
    of: str
    """A principal, or the address of clients that were not let in; or `(others)`."""
    count: int


def access(at_ms: int, decision: Decision, who: Who, api: str, use: Use, reason: str, rule: str) -> bytes:
    operation, resource_type, name = use
    return _encode(
        _Access(
            _time(at_ms), decision, *_named(who), _name(api), operation, resource_type, _name(name or ""),
            _name(reason), _name(rule),
        )
    )  # fmt: skip


def login(at_ms: int, decision: Decision, who: Who, claimed: str = "", reason: str = "") -> bytes:
    return _encode(_Login(_time(at_ms), decision, *_named(who), _name(claimed), _name(reason)))


def left_out(at_ms: int, of: str, count: int) -> bytes:
    return _encode(_LeftOut(_time(at_ms), _name(of), count))


_encode = msgspec.json.Encoder().encode


def _named(who: Who) -> tuple[str, str, str, str, str]:
    return _name(who.listener), who.peer, _name(who.principal), _name(who.mechanism), _name(who.client_id)


def _name(text: str) -> str:
    return printable(text, LONGEST_NAME)


def _time(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
