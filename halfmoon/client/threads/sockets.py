"""A socket that never blocks, as the shell's thread and its callers use it together."""

from __future__ import annotations

import errno
import os
import socket
from collections import deque

from halfmoon.client.engine.network import Connection

READ_BYTES = 256 << 10


class Socket:
    """The shell's side of a connection."""

    __slots__ = ("connection", "is_closing", "is_connected", "is_full", "out", "out_bytes", "sock")

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.sock: socket.socket | None = None
        self.out: deque[bytes] = deque()
        self.out_bytes = 0
        self.is_full = False
        """The socket takes no more for now; the selector says when it does."""
        self.is_connected = False
        self.is_closing = False


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
