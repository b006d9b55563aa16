"""The administrator's socket: `admin.sock` in the data directory, for the broker's own user of this machine.

It speaks Kafka's protocol, and who connects is a super user without a credential, as PostgreSQL's `peer` authentication
has it: the kernel says whose process it is. So the first user can be made, and no password is there by default.
"""

from __future__ import annotations

import contextlib
import os
import socket
import stat
import struct
from pathlib import Path

from halfmoon.errors import StartError

NAME = "admin.sock"
ROOT = 0
LONGEST_PATH = 107
"""Bytes of a socket's name (sockaddr_un.sun_path)."""
_CREDENTIALS = struct.Struct("3i")
"""pid, uid, gid (SO_PEERCRED, unix(7))."""


def path_of(data_dir: str | Path, name: str = NAME) -> Path:
    """Where it is, or another socket: elsewhere, where the data directory's path is too long. Raises StartError."""
    path = Path(data_dir).absolute() / name
    if len(os.fsencode(path)) <= LONGEST_PATH:
        return path
    folder = Path(os.environ.get("XDG_RUNTIME_DIR") or f"/tmp/halfmoon-{os.getuid()}")
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        made = folder.stat()
    except OSError as error:
        raise StartError(f"cannot use {folder} for {name}: {error.strerror or error}") from error
    # Everybody may have made a folder of that name in /tmp, and would put a socket of his own there.
    if made.st_uid != os.getuid() or made.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise StartError(f"cannot use {folder} for {name}: others may write there; set XDG_RUNTIME_DIR")
    found = Path(data_dir).absolute().stat()
    which = ".sock" if name == NAME else f"-{name}"
    return folder / f"halfmoon-{found.st_dev:x}-{found.st_ino:x}{which}"


def listening_at(path: Path) -> socket.socket:
    """A socket that nobody else may connect to. The data directory is locked, so what is there is left over. Raises
    OSError."""
    with contextlib.suppress(FileNotFoundError):
        path.unlink()
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    before = os.umask(0o177)
    try:
        made.bind(os.fspath(path))
    except OSError:
        made.close()
        raise
    finally:
        os.umask(before)
    return made


def is_ours(connected: socket.socket) -> bool:
    """Whether the process at the other end is of the broker's user, or root's."""
    _, uid, _ = _CREDENTIALS.unpack(connected.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))
    return uid in (os.getuid(), ROOT)
