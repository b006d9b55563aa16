"""TLS of a listener: its certificate and key, read at the start and again when the files change.

A new pair is looked at before it takes the old one's place: key and certificate belong together, the certificate has
not expired, nobody else may read the key. What is wrong with it is said in /healthz, and the old pair stays.

Connections that are there keep what they began with.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import stat
from collections import Counter
from collections.abc import Callable
from contextvars import ContextVar
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from halfmoon.adapters.tcp.certificates import not_after_s
from halfmoon.config.listener_settings import TlsSettings
from halfmoon.errors import StartError

WARN_S = 14 * 86_400
"""A certificate that expires sooner is a warning."""

HANDSHAKE = 0x16
"""The first byte of a client that speaks TLS: the content type of a record (RFC 8446, 5.1)."""

SOCKET: ContextVar[socket.socket] = ContextVar("SOCKET")
"""Of the connection whose handshake is to begin."""

_CLIENT_AUTH = {"none": ssl.CERT_NONE, "request": ssl.CERT_OPTIONAL, "require": ssl.CERT_REQUIRED}


class Tls:
    """Of one listener."""

    def __init__(self, name: str, settings: TlsSettings, wall_ms: Callable[[], int]) -> None:
        """`name`: the listener's. `wall_ms`: Unix time. Raises StartError."""
        self.name = name
        self._settings = settings
        self._wall_ms = wall_ms
        self.problem = ""
        """Why the files as they are now were not taken."""
        self.handshakes: Counter[str] = Counter()
        """By their result: `ok`, `failed` or `timeout`."""
        self._seen = self._stamps()
        self.current, self.expiry_s = self._load()
        """The context for new connections, and when its certificate expires (Unix time, seconds)."""

    def reload(self, *, unless_seen: bool = False) -> bool:
        """Read the files; whether they were taken. `unless_seen`: only where they are others than the last time."""
        stamps = self._stamps()
        if unless_seen and stamps == self._seen:
            return False
        self._seen = stamps
        try:
            self.current, self.expiry_s = self._load()
        except StartError as error:
            self.problem = str(error)
            return False
        self.problem = ""
        return True

    def warnings(self) -> list[str]:
        """A sentence each."""
        found = []
        left_s = self.expiry_s - self._wall_ms() / 1000
        if left_s < WARN_S:
            when = datetime.fromtimestamp(self.expiry_s, UTC).strftime("%Y-%m-%d %H:%M UTC")
            verb = "expires" if left_s > 0 else "expired"
            found.append(f"listener {self.name}: the certificate {self._settings.cert} {verb} at {when}")
        if self.problem:
            found.append(f"listener {self.name}: the old certificate is still in use: {self.problem}")
        return found

    def _stamps(self) -> list[tuple[int, int, int] | None]:
        settings = self._settings
        stamps: list[tuple[int, int, int] | None] = []
        for path in (settings.cert, settings.key, settings.client_ca):
            try:
                found = None if path is None else Path(path).stat()
            except OSError:
                found = None
            stamps.append(None if found is None else (found.st_mtime_ns, found.st_size, found.st_ino))
        return stamps

    def _load(self) -> tuple[ssl.SSLContext, float]:
        """Raises StartError."""
        settings = self._settings
        try:
            if Path(settings.key).stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO):
                raise StartError(f"tls: others may read the key {settings.key}; chmod 600 {settings.key}")
            certificate = Path(settings.cert).read_text("ascii", "replace")
        except OSError as error:
            raise StartError(f"tls: {error.filename}: {error.strerror}") from None
        try:
            expiry_s = not_after_s(ssl.PEM_cert_to_DER_cert(_first(certificate)))
        except ValueError as error:
            raise StartError(f"tls: {settings.cert}: {error}") from None
        if expiry_s <= self._wall_ms() / 1000:
            when = datetime.fromtimestamp(expiry_s, UTC).strftime("%Y-%m-%d %H:%M UTC")
            raise StartError(f"tls: the certificate {settings.cert} expired at {when}")
        return server_context(settings), expiry_s


class _Handshake(ssl.SSLObject):
    """One whose client is told why it has failed (an alert: RFC 8446, 6.2). asyncio and uvloop close the connection
    without what OpenSSL has written for that; the client would see an end and no reason."""

    outgoing: ssl.MemoryBIO
    socket: socket.socket | None

    def do_handshake(self) -> None:
        try:
            super().do_handshake()
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise
        except ssl.SSLError:
            alert = self.outgoing.read()
            if alert and self.socket is not None:
                with contextlib.suppress(OSError):
                    self.socket.send(alert)
            raise


class _Context(ssl.SSLContext):
    sslobject_class = _Handshake

    def wrap_bio(self, incoming: ssl.MemoryBIO, outgoing: ssl.MemoryBIO, *args: Any, **options: Any) -> ssl.SSLObject:
        made = super().wrap_bio(incoming, outgoing, *args, **options)
        assert isinstance(made, _Handshake)
        made.outgoing, made.socket = outgoing, SOCKET.get(None)
        return made


def server_context(settings: TlsSettings) -> ssl.SSLContext:
    """Raises StartError."""
    context = _Context(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION
    context.num_tickets = 1  # a client that comes again needs one, and each costs the handshake time
    context.verify_mode = _CLIENT_AUTH[settings.client_auth]
    try:
        context.load_cert_chain(settings.cert, settings.key, password=_no_password)
        if settings.client_ca is not None:
            context.load_verify_locations(settings.client_ca)
    except ssl.SSLError as error:
        reason = (error.reason or str(error)).lower().replace("_", " ")
        files = f"{settings.cert}, {settings.key}" + (f", {settings.client_ca}" if settings.client_ca else "")
        raise StartError(f"tls: {files}: {reason}") from None
    except OSError as error:
        raise StartError(f"tls: {error.filename or settings.client_ca}: {error.strerror}") from None
    return context


def _no_password() -> str:
    """OpenSSL would ask at the terminal."""
    raise StartError("tls: the key has a password, which nobody could type at a start; remove it from the file")


def _first(pem: str) -> str:
    """The first certificate of a file, which is the listener's own. Raises ValueError."""
    begin = pem.find(ssl.PEM_HEADER)
    end = pem.find(ssl.PEM_FOOTER, begin)
    if begin < 0 or end < 0:
        raise ValueError("there is no certificate")
    return pem[begin : end + len(ssl.PEM_FOOTER)]
