"""How a client shows a cluster who it is, and keeps others from listening: the options `access_key`, `secret_key` and
`tls`."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from halfmoon.auth.access_key import ACCESS_KEY, SIGNATURE, signature
from halfmoon.client.errors import ConfigError
from halfmoon.remoting.command import VERSION

if TYPE_CHECKING:
    import ssl

Sign = Callable[[Mapping[str, str], bytes], Mapping[str, str]]
"""(fields, body) → the fields with who asks, and the signature."""
Tls = Any
"""An ssl.SSLContext, or a PEM file with the authorities that are trusted. None: no TLS."""


class Access(Struct, frozen=True):
    sign: Sign | None = None
    """None: requests are not signed."""
    tls: ssl.SSLContext | None = None
    """None: as plain text."""


def access_of(access_key: str | None, secret_key: str | None, tls: Tls) -> Access:
    """Raises ConfigError."""
    return Access(_signing(access_key, secret_key), None if tls is None else _context(tls))


def _signing(access_key: str | None, secret_key: str | None) -> Sign | None:
    if access_key is None and secret_key is None:
        return None
    if not access_key or not secret_key:
        raise ConfigError("access_key and secret_key belong together, and neither is empty")
    name, secret = access_key, secret_key

    def sign(fields: Mapping[str, str], body: bytes) -> Mapping[str, str]:
        """As AclClientRPCHook of RocketMQ 5.3."""
        named = {**fields, ACCESS_KEY: name}
        named[SIGNATURE] = signature(secret, named, body, VERSION)
        return named

    return sign


def _context(tls: Tls) -> ssl.SSLContext:
    import ssl  # 10 ms, and few need it

    if isinstance(tls, ssl.SSLContext):
        return tls
    if not isinstance(tls, str | os.PathLike):
        raise ConfigError(f"tls is {tls!r}, expected an ssl.SSLContext or a PEM file of authorities")
    try:
        return ssl.create_default_context(cafile=tls)
    except OSError as error:
        raise ConfigError(f"tls: {os.fspath(tls)!r}: {error.strerror or error}") from error
