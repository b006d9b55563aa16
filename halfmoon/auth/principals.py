"""Who somebody is: a kind, which is "User" so far, and a name (Kafka: KafkaPrincipal)."""

from __future__ import annotations

from typing import NamedTuple

USER = "User"


class Principal(NamedTuple):
    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}"


ANONYMOUS = Principal(USER, "ANONYMOUS")
"""Of a connection that has not authenticated."""
LOCAL_ADMIN = Principal(USER, "local-admin")
"""Who comes through the administrator's socket, and needs no credential: the broker's own user of the machine."""
OWN = frozenset((ANONYMOUS, LOCAL_ADMIN))
"""Whom the broker names so: nobody is one of these by a credential, whatever name an authority has given him."""


def user(name: str) -> Principal:
    return Principal(USER, name)


def parse(text: str) -> Principal:
    """Of "User:alice"; a name may have colons in it. Raises ValueError."""
    kind, colon, name = text.partition(":")
    if not (kind and colon and name):
        raise ValueError(f"could not parse principal from '{text}': expected TYPE:NAME")
    return Principal(kind, name)
