"""What a backup of a cluster is.

    DEST/tables        rows of the database (`tables`)
    DEST/objects/…     the objects that they name, under their names without the cluster's id
    DEST/backup.json   what is in it; written last: without it nothing is a backup

What an object holds is listed with a CRC by the rows: so a backup is checked by reading it.
"""

from __future__ import annotations

import contextlib
import mmap
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from halfmoon.cluster.backup import tables
from halfmoon.cluster.backup.tables import Rows
from halfmoon.core.crc import crc32c
from halfmoon.errors import StartError

FORMAT: Final = 1
MANIFEST, TABLES, OBJECTS = "backup.json", "tables", "objects"


class Manifest(msgspec.Struct, kw_only=True):
    format: int
    cluster_id: str
    database_format: int
    """Of the tables (cluster/postgres/schema)."""
    made_at: str
    """When the cluster was as this says: by the database's clock, ISO 8601."""
    shards: int
    rows: dict[str, int]
    """By table."""
    columns: dict[str, list[str]]
    tables_bytes: int
    objects: int
    objects_bytes: int


_TAKEN: Final = {
    "object": ("key", "size"),
    "piece": ("key", "start_position", "end_position", "crc", "at"),
    "file": ("key", "size", "crc"),
}
"""Columns of what names objects."""
_manifest = msgspec.json.Decoder(Manifest)


class Part(NamedTuple):
    """Of an object."""

    at: int
    size: int
    crc: int


class Wanted(NamedTuple):
    """An object that is part of a backup."""

    key: str
    size: int
    parts: set[Part]
    """What is needed of it. Several shards may need the same."""


class Objects:
    """Those that rows name, gathered while the rows go by."""

    def __init__(self, columns: Mapping[str, Sequence[str]]) -> None:
        """`columns`: of the tables, as rows have them."""
        self.by_key: dict[str, Wanted] = {}
        self._taken = {
            table: [columns[table].index(name) for name in names]
            for table, names in _TAKEN.items()
            if table in columns
        }  # fmt: skip

    def see(self, found: Rows) -> None:
        places = self._taken.get(found.table)
        if places is None:
            return
        for row in found.rows:
            key, *more = (row[place] for place in places)
            if found.table == "object":
                self.by_key[key] = Wanted(key, more[0], set())
            elif found.table == "piece":
                start, end, crc, at = more
                self.by_key[key].parts.add(Part(at, end - start, crc))
            else:
                size, crc = more
                self.by_key[key].parts.add(Part(0, size, crc))

    @property
    def bytes(self) -> int:
        return sum(each.size for each in self.by_key.values())


class Copied:
    """A folder that is a backup, or is to become one."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.tables = folder / TABLES

    def path_of(self, key: str) -> Path:
        """Of an object: without the cluster's id, with which every key begins."""
        name = key.partition("/")[2]
        if not name or ".." in name.split("/"):
            raise StartError(f"{self.folder}: {key!r} is no name of an object")
        return self.folder / OBJECTS / name

    def manifest(self) -> Manifest:
        """Raises StartError where this is no backup, or of a newer program."""
        path = self.folder / MANIFEST
        try:
            found = _manifest.decode(path.read_bytes())
        except FileNotFoundError:
            raise StartError(f"{self.folder} is no backup of a cluster: there is no {MANIFEST} in it") from None
        except msgspec.DecodeError as error:
            raise StartError(f"{path}: {error}") from error
        if found.format > FORMAT:
            raise StartError(f"{path} has format {found.format}; this program knows {FORMAT}")
        return found

    def rows(self, manifest: Manifest) -> Iterator[Rows]:
        """Raises StartError where something is missing or damaged, OSError."""
        counts = dict.fromkeys(manifest.rows, 0)
        for found in tables.read(self.tables, manifest.tables_bytes):
            counts[found.table] += len(found.rows)
            yield found
        if counts != manifest.rows:
            raise StartError(f"{self.tables} has {counts}, and should have {manifest.rows}")

    def objects(self, manifest: Manifest) -> Mapping[str, Wanted]:
        """By key. Raises StartError, OSError."""
        found = Objects(manifest.columns)
        for rows in self.rows(manifest):
            found.see(rows)
        return found.by_key

    def check(self, wanted: Wanted) -> None:
        """Raises StartError where the copy of an object is not what was stored, OSError."""
        path = self.path_of(wanted.key)
        try:
            with path.open("rb") as file:
                _check(path, file.fileno(), wanted)
        except FileNotFoundError:
            raise StartError(f"{path} is missing") from None

    def finish(self, manifest: Manifest) -> None:
        """From here on it is a backup. Raises OSError."""
        for folder, _, _ in os.walk(self.folder):
            _sync(Path(folder))
        for above in self.folder.absolute().parents:  # some may have been made for it
            with contextlib.suppress(PermissionError):  # others are another user's
                _sync(above)
        made = self.folder / f"{MANIFEST}.new"
        made.write_bytes(msgspec.json.format(msgspec.json.encode(manifest)))
        _sync(made)
        made.rename(self.folder / MANIFEST)
        _sync(self.folder)


def _check(path: Path, fd: int, wanted: Wanted) -> None:
    size = os.fstat(fd).st_size
    if size != wanted.size:
        raise StartError(f"{path} has {size} bytes, and not {wanted.size}")
    if not size:
        return
    with mmap.mmap(fd, size, prot=mmap.PROT_READ) as mapped, memoryview(mapped) as view:
        for part in wanted.parts:
            if crc32c(view[part.at : part.at + part.size]) != part.crc:
                raise StartError(f"{path} is damaged behind byte {part.at}")


def _sync(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
