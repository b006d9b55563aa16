"""Access tokens for commands: by a client's id and secret (RFC 6749, client_credentials), or from a file, as Java's
clients get them (ClientCredentialsJwtRetriever, FileJwtRetriever)."""

from __future__ import annotations

import base64
import threading
import time
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from urllib.parse import unquote, urlencode, urlsplit

import msgspec

from halfmoon.securing.errors import SecurityError

ENDPOINT = "sasl.oauthbearer.token.endpoint.url"
RENEWED_AT = 0.8
"""Of its lifetime: then another one is asked for."""
SHORTEST_S = 60.0
"""The lifetime of a token whose provider says nothing of it."""


class OauthLogin(msgspec.Struct, frozen=True):
    """How to get a token."""

    endpoint: str
    """https://…, or file://… of a token."""
    client_id: str = ""
    client_secret: str = ""
    scope: str = ""
    authorities: str = ""
    """In PEM: by which the endpoint's certificate is verified; empty: those of this machine."""
    extensions: tuple[tuple[str, str], ...] = ()
    """Of SASL's."""

    def __repr__(self) -> str:
        return f"OauthLogin({self.endpoint!r}, {self.client_id!r}, …)"


class _Said(msgspec.Struct):
    access_token: str
    expires_in: float = SHORTEST_S


class TokenSource:
    """Of one login; from any thread."""

    def __init__(self, login: OauthLogin) -> None:
        self._login = login
        self._lock = threading.Lock()
        self._token = ""
        self._until_s = 0.0

    @property
    def extensions(self) -> Mapping[str, str]:
        return dict(self._login.extensions)

    def token(self) -> str:
        """A token that is good for a while. Raises SecurityError."""
        parts = urlsplit(self._login.endpoint)
        if parts.scheme == "file":
            return _of_file(Path(unquote(parts.path)))
        with self._lock:
            now_s = time.monotonic()
            if now_s >= self._until_s:
                said = self._ask()
                self._token = said.access_token
                self._until_s = now_s + RENEWED_AT * said.expires_in
            return self._token

    def _ask(self) -> _Said:
        from halfmoon import https  # few need it

        login = self._login
        fields = {"grant_type": "client_credentials"} | ({"scope": login.scope} if login.scope else {})
        secret = base64.b64encode(f"{login.client_id}:{login.client_secret}".encode()).decode()
        headers = {"Authorization": f"Basic {secret}", "Content-Type": "application/x-www-form-urlencoded"}
        try:
            answer = https.request(
                login.endpoint, authorities=login.authorities, body=urlencode(fields).encode(), headers=headers
            )
            return msgspec.json.decode(answer, type=_Said)
        except (https.HttpsError, msgspec.DecodeError) as error:
            raise SecurityError(f"no access token from {login.endpoint}: {error}") from None


@cache
def source_of(login: OauthLogin) -> TokenSource:
    """One for all connections of a command."""
    return TokenSource(login)


def _of_file(file: Path) -> str:
    """Read anew each time: whoever writes it replaces tokens. Raises SecurityError."""
    try:
        return file.read_text("ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = isinstance(error, OSError) and error.strerror
        raise SecurityError(f"no access token from {file}: {reason or 'this is no token'}") from None
