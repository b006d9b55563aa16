"""The file that says how far a dispatcher has come, and what it knew there.

    magic "HMfo"   version u8   crc32c u32 (of what follows)   Saved in MessagePack

Position and state are one file, replaced atomically, so that they always belong together. A file of another log, or of
this log before it was taken back to an older copy, is not believed: the position must be in the log, and the frame that
ended there must still be the same.
"""

from __future__ import annotations

import struct
from urllib.parse import quote

import msgspec

from halfmoon.core.crc import crc32c
from halfmoon.core.storage.files import FileSystem, read_file, write_file
from halfmoon.core.storage.frame import HEADER_BYTES, BadFrameError
from halfmoon.core.storage.scan import read_header
from halfmoon.core.storage.storage import WriteSide

FOLDER = "plugins"
"""In the data directory, with a folder for each plugin."""
_HEAD = struct.Struct("<4sBI")
_MAGIC, _VERSION = b"HMfo", 1


class Mark(msgspec.Struct, frozen=True, array_like=True):
    """By which a frame is known again."""

    position: int
    end: int
    generation: int
    payload_crc: int


class Saved(msgspec.Struct, frozen=True, array_like=True):
    cluster_id: str
    position: int
    """All frames below it are dealt with, …"""
    held: tuple[tuple[int, int, int], ...]
    """… but in these partitions (topic number, partition, log position) what is behind this one."""
    last: Mark | None
    """The frame that ends at `position`; None where none was read yet."""
    state: bytes


def folder_of(plugin: str) -> str:
    """A plugin's folder in the data directory. Names are escaped, so that none leads out of it or into another's."""
    return f"{FOLDER}/{_escaped(plugin)}"


def path_of(plugin: str, dispatcher: str) -> str:
    return f"{folder_of(plugin)}/{_escaped(dispatcher)}.position"


def _escaped(name: str) -> str:
    escaped = quote(name, safe="")
    return "%2E" + escaped[1:] if escaped.startswith(".") else escaped


def save(fs: FileSystem, path: str, saved: Saved) -> None:
    """Durable when it returns; meant for a thread. Raises OSError."""
    body = msgspec.msgpack.encode(saved)
    write_file(fs, path, [_HEAD.pack(_MAGIC, _VERSION, crc32c(body)), body])


def load(fs: FileSystem, path: str) -> Saved | None:
    """None where there is no such file. Raises ValueError where it cannot be read; OSError."""
    data = read_file(fs, path)
    if data is None:
        return None
    if len(data) < _HEAD.size:
        raise ValueError("it is cut off")
    magic, version, crc = _HEAD.unpack_from(data)
    if magic != _MAGIC or version != _VERSION:
        raise ValueError("it is of another version")
    body = data[_HEAD.size :]
    if crc32c(body) != crc:
        raise ValueError("its checksum is wrong")
    return msgspec.msgpack.decode(body, type=Saved)


def check(saved: Saved, log: WriteSide, cluster_id: str) -> None:
    """Raises ValueError where the position is not one of this log."""
    if saved.cluster_id != cluster_id:
        raise ValueError("it is of another node's log")
    if saved.position > log.end:
        raise ValueError(f"it says {saved.position}, and the log ends at {log.end}")
    last = saved.last
    if last is None or last.position < log.start:
        return
    try:
        log.recover(last.position, last.position + HEADER_BYTES)
        found = read_header(log.segment_at(last.position), last.position, 0)
    except BadFrameError as error:
        raise ValueError(f"the log has another frame at {last.position}: {error}") from error
    if Mark(found.position, found.end, found.generation, found.payload_crc) != last:
        raise ValueError(f"the log has another frame at {last.position}")
