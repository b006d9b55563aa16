"""Rows of a cluster's database in a file, table after table.

    chunk    8 bytes: length and CRC-32C of what follows; then msgpack [table, rows], a row as its columns

Little-endian. Which columns a table has stands in the manifest (`copied`), so a newer program knows what it is given.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from halfmoon.core.crc import crc32c
from halfmoon.errors import StartError

COLUMNS: Final[Mapping[str, Sequence[str]]] = {
    "cluster": ("id", "shards"),
    "shard": ("shard", "durability", "epoch", "end_position"),
    "object": ("key", "size"),
    "piece": ("shard", "start_position", "end_position", "crc", "segment", "key", "at"),
    "wal": ("shard", "start_position", "end_position", "crc", "segment", "frames"),
    "file": ("shard", "path", "key", "size", "crc"),
    "change": ("version", "records", "crc"),
    "snapshot": ("version", "data", "crc"),
}
"""What a cluster is, in an order in which rows may be put back: those of `piece` and `file` name objects. Who the nodes
were is not part of it."""

Row = Sequence[Any]
_HEAD: Final = struct.Struct("<II")
_MOST: Final = 1 << 30
"""Bytes of a chunk: whatever says more is damaged."""
_chunk = msgspec.msgpack.Decoder(tuple[str, list[list[Any]]])


class Rows(NamedTuple):
    """Some of a table's."""

    table: str
    rows: Sequence[Row]


class TablesWriter:
    def __init__(self, path: Path) -> None:
        # Nobody else may read it: it has credentials and messages.
        self._file = os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb")
        self.size = 0
        """Bytes."""
        self.counts = dict.fromkeys(COLUMNS, 0)

    def add(self, found: Rows) -> None:
        """Raises StartError where it is more than can be read back, OSError."""
        body = msgspec.msgpack.encode(found)
        if len(body) >= _MOST:
            raise StartError(f"rows of {found.table} have {len(body)} bytes, and fewer than {_MOST} can be read back")
        self._file.write(_HEAD.pack(len(body), crc32c(body)))
        self._file.write(body)
        self.size += _HEAD.size + len(body)
        self.counts[found.table] += len(found.rows)

    def sync(self) -> None:
        """All of it is on the disk then. Raises OSError."""
        self._file.flush()
        os.fsync(self._file.fileno())

    def close(self) -> None:
        self._file.close()


def read(path: Path, size: int) -> Iterator[Rows]:
    """All rows of a file that has so many bytes. Raises StartError where it is not what was written, OSError."""
    with path.open("rb") as file:
        at = 0
        while at < size:
            head = file.read(_HEAD.size)
            length, crc = _HEAD.unpack(head) if len(head) == _HEAD.size else (_MOST, 0)
            body = file.read(length) if length < _MOST else b""
            if len(body) != length or crc32c(body) != crc:
                raise StartError(f"{path} is damaged at byte {at}")
            yield Rows(*_chunk.decode(body))
            at += _HEAD.size + length
        if at != size or file.read(1):
            raise StartError(f"{path} has not {size} bytes, as it should")
