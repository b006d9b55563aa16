"""PLAIN (RFC 4616): a name and a password as they are, verified against a SCRAM credential.

    [authzid] NUL name NUL password

Rules as Kafka's PlainSaslServer: three parts, neither name nor password empty, an authorization id must be the name.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable, Mapping
from typing import NamedTuple

from halfmoon.auth.errors import AuthenticationError
from halfmoon.auth.scram import (
    LONGEST_NAME,
    SHA_256,
    Credential,
    Found,
    Login,
    Mechanism,
    make_credential,
    unknown_credential,
)

_LONGEST_PASSWORD = 1024
"""Bytes. RFC 4616 asks for 255."""


class Plain(NamedTuple):
    name: str
    password: str

    def __repr__(self) -> str:
        return f"Plain({self.name!r}, …)"


def parse(message: bytes) -> Plain:
    """Raises AuthenticationError."""
    if len(message) > 2 * LONGEST_NAME + _LONGEST_PASSWORD + 2:
        raise AuthenticationError(f"PLAIN: a message of {len(message)} bytes")
    try:
        parts = message.decode().split("\0")
    except UnicodeDecodeError:
        raise AuthenticationError("PLAIN: the message is not UTF-8") from None
    if len(parts) != 3:
        raise AuthenticationError(f"PLAIN: expected 3 parts, not {len(parts)}")
    authzid, name, password = parts
    if not name or not password:
        raise AuthenticationError("PLAIN: no name or no password")
    if len(name.encode()) > LONGEST_NAME or len(password.encode()) > _LONGEST_PASSWORD:
        raise AuthenticationError("PLAIN: the name or the password is too long")
    if authzid and authzid != name:
        raise AuthenticationError("PLAIN: the authorization id is not the name")
    return Plain(name, password)


def verification(asked: Plain, found: Mapping[Mechanism, Found], unknown_key: bytes) -> Callable[[], Login]:
    """What is to run in a thread: it takes milliseconds, and raises AuthenticationError. `found`: the credentials of
    the name, by mechanism. For a name without one it does the same work, and fails."""
    mechanism, known = next(iter(found.items()), (SHA_256, None))
    credential = unknown_credential(mechanism, unknown_key, asked.name) if known is None else known.credential

    def verify() -> Login:
        if not has_password(mechanism, credential, asked.password) or known is None or not known.usable:
            raise AuthenticationError(f"PLAIN: user '{asked.name}' is unknown, disabled, or has another password")
        return Login(known.principal)

    return verify


def has_password(mechanism: Mechanism, credential: Credential, password: str) -> bool:
    """Whether a SCRAM credential is of this password. Takes milliseconds."""
    made = make_credential(mechanism, password, credential.salt, credential.iterations)
    return hmac.compare_digest(made.stored_key, credential.stored_key)
