"""What `halfmoon user` asks, and the answers: plain records, on the wire as JSON (API 18503), bytes in base64.

A password never travels: what does is salted, as in Kafka's AlterUserScramCredentials. A secret of RocketMQ's
signatures does, because the broker needs it as it is.
"""

from __future__ import annotations

from msgspec import Struct

MOST = 1_000
"""Users in one answer."""


class SaltedPassword(Struct, frozen=True):
    """For one mechanism, by Kafka's number."""

    mechanism: int
    iterations: int
    salt: bytes
    salted_password: bytes


class Create(Struct, frozen=True, tag="create", forbid_unknown_fields=True):
    name: str
    passwords: tuple[SaltedPassword, ...] = ()
    admin: bool = False


class SetPasswords(Struct, frozen=True, tag="passwords", forbid_unknown_fields=True):
    """In place of all that the user has."""

    name: str
    passwords: tuple[SaltedPassword, ...]


class SetFlags(Struct, frozen=True, tag="flags", forbid_unknown_fields=True):
    """None stays as it is."""

    name: str
    disabled: bool | None = None
    admin: bool | None = None


class SetSecret(Struct, frozen=True, tag="secret", forbid_unknown_fields=True):
    """Of RocketMQ's signatures; None removes it."""

    name: str
    secret: str | None

    def __repr__(self) -> str:
        return f"SetSecret({self.name!r}, …)"


class Delete(Struct, frozen=True, tag="delete", forbid_unknown_fields=True):
    name: str


class Describe(Struct, frozen=True, tag="describe", forbid_unknown_fields=True):
    name: str


class ListUsers(Struct, frozen=True, tag="list", forbid_unknown_fields=True):
    """By name, those behind `after`; `MOST` at most."""

    after: str = ""


Question = Create | SetPasswords | SetFlags | SetSecret | Delete | Describe | ListUsers


class Shown(Struct, frozen=True):
    """A user, without anything that helps to be it."""

    name: str
    mechanisms: tuple[tuple[str, int], ...]
    """(name, iterations)"""
    disabled: bool
    admin: bool
    rocketmq: bool
    """It has a secret of RocketMQ's signatures."""


class Answer(Struct, frozen=True, omit_defaults=True):
    users: tuple[Shown, ...] = ()
    fault: str = ""
    message: str = ""
