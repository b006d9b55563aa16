"""A socket that never blocks, as the shell's thread and its callers use it together."""

from __future__ import annotations

import errno
import os
import selectors
import socket
import ssl
import threading
from collections import deque
from collections.abc import Callable

from halfmoon.client.engine.network import Connection

READ_BYTES = 256 << 10
JOINED_BYTES = 256 << 10
"""Small frames are sent together up to this."""
RECORD_BYTES = 16 << 10
"""TLS takes so much at a time: a record. What it could not send has to be given to it again, and no less."""


class Socket:
    """The shell's side of a connection."""

    __slots__ = ("connection", "is_closing", "is_connected", "is_full", "is_shaking", "out", "out_bytes", "sock")

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.sock: socket.socket | None = None
        self.out: deque[bytes | memoryview] = deque()
        self.out_bytes = 0
        self.is_full = False
        """The socket takes no more for now; the selector says when it does."""
        self.is_connected = False
        self.is_shaking = False
        """Its TLS handshake is under way."""
        self.is_closing = False

    @property
    def is_secure(self) -> bool:
        """Two threads must not use it at a time, as they may a socket: only who has the shell's lock."""
        return isinstance(self.sock, ssl.SSLSocket)

    def next_out(self) -> bytes | memoryview:
        """What is to be sent next. Some must be there."""
        out = self.out
        data = out.popleft()
        if not out or len(data) >= JOINED_BYTES:
            return data
        parts, size = [data], len(data)
        while out and size < JOINED_BYTES:
            parts.append(out.popleft())
            size += len(parts[-1])
        return b"".join(parts)

    def begin_tls(self, tls: ssl.SSLContext, sock: socket.socket) -> None:
        """From now on what is sent is encrypted, once hands are shaken. Raises OSError, ValueError."""
        host = self.connection.address.rpartition(":")[0].strip("[]")
        self.sock = tls.wrap_socket(sock, server_hostname=host, do_handshake_on_connect=False)
        self.is_shaking = True


def open_to(address: str, opened: Callable[[socket.socket | Exception], None]) -> None:
    """`opened` gets a socket that is being connected to HOST:PORT, or why there is none: now, or in another thread,
    because looking up a host's name may take long."""
    host, _, port = address.rpartition(":")
    host = host.strip("[]")

    def open_it() -> None:
        try:
            made = open_socket(host, int(port))
        except OSError as error:
            opened(error)
        else:
            opened(made)

    if is_literal(host):
        open_it()
    else:
        threading.Thread(target=open_it, name="halfmoon-client look-up", daemon=True).start()


def open_socket(host: str, port: int) -> socket.socket:
    """A socket that is being connected; when it is, it can be written to. Looks the host up. Raises OSError."""
    family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    sock = socket.socket(family, kind, protocol)
    sock.setblocking(False)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    code = sock.connect_ex(address)
    if code not in (0, errno.EINPROGRESS, errno.EWOULDBLOCK):
        sock.close()
        raise OSError(code, os.strerror(code))
    return sock


def read(handle: Socket) -> tuple[Socket, bytes | None, str]:
    """What has come: nothing yet, bytes, or the end and why."""
    sock = handle.sock
    if sock is None:
        return handle, None, ""
    try:
        return handle, sock.recv(READ_BYTES), "the node has closed the connection"
    except BlockingIOError:
        return handle, None, ""
    except OSError as error:
        return handle, b"", str(error)


def read_secure(handle: Socket) -> tuple[Socket, bytes | None, str]:
    """As `read`: all records that are there, since TLS gives one at a time, up to READ_BYTES or so."""
    sock, size = handle.sock, 0
    parts: list[bytes] = []
    why = "the node has closed the connection"
    while sock is not None and size < READ_BYTES:
        try:
            part = sock.recv(READ_BYTES)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return handle, b"".join(parts) if parts else None, ""
        except OSError as error:
            part, why = b"", str(error)
        if not part:  # what came before is told first; the end is still there when it is read again
            return handle, b"".join(parts), why
        parts.append(part)
        size += len(part)
    return handle, b"".join(parts) if parts else None, ""


def send(sock: socket.socket, data: bytes | memoryview) -> int:
    """How much of it was taken; 0: nothing for now. Raises OSError."""
    try:
        if isinstance(sock, ssl.SSLSocket):
            return sock.send(memoryview(data)[:RECORD_BYTES])
        return sock.send(data)
    except (BlockingIOError, ssl.SSLWantWriteError, ssl.SSLWantReadError):
        return 0


def shake_hands(sock: socket.socket) -> int:
    """Go on with the handshake; the selector's events that it waits for, 0 where it is over. Raises OSError."""
    assert isinstance(sock, ssl.SSLSocket)
    try:
        sock.do_handshake()
    except ssl.SSLWantReadError:
        return selectors.EVENT_READ
    except ssl.SSLWantWriteError:
        return selectors.EVENT_WRITE
    return 0


def drain(sock: socket.socket) -> None:
    """Take all that has come, and forget it."""
    try:
        while sock.recv(4_096):
            pass
    except BlockingIOError:
        pass


def is_literal(host: str) -> bool:
    """Whether this is an address, which nobody need look up."""
    for family in (socket.AF_INET, socket.AF_INET6):
        try:
            socket.inet_pton(family, host)
        except OSError:
            continue
        return True
    return False
