"""Shards on a disk, brought into a cluster that is empty: their files become objects, and rows that name them.

Shards that were made of one log have most of their files in common, as hard links. Such a file becomes one object,
which all of them name: so as many bytes are sent as there are on the disk, and an object goes when the last shard does
not need it any more.

Everything is there in one transaction at the end. What was sent before, by an attempt that has died, is a leftover,
which nodes delete a day later.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from halfmoon.cluster.backup.committed import is_committed
from halfmoon.cluster.backup.parallel import Progress, in_parallel
from halfmoon.cluster.backup.ports import Made, Unused
from halfmoon.cluster.backup.tables import Row, Rows
from halfmoon.cluster.engine import footer, naming
from halfmoon.cluster.engine.database import Commit, DatabaseUnavailableError, SideFile
from halfmoon.cluster.engine.merging import MOST_BYTES
from halfmoon.cluster.engine.objects import ObjectStore
from halfmoon.cluster.engine.pieces import Piece
from halfmoon.cluster.engine.trying import put_once
from halfmoon.core import clean_files, clean_mark, identity
from halfmoon.core.crc import crc32c
from halfmoon.core.identity import Identity
from halfmoon.core.storage import index
from halfmoon.core.storage.files import OsFileSystem
from halfmoon.core.storage.log_files import list_segments
from halfmoon.errors import StartError
from halfmoon.services.keyindex import key_file

AT_ONCE: Final = 3
"""Objects; each takes twice MOST_BYTES of memory, no more."""
ROWS: Final = 1_000
BESIDE: Final = ("checkpoint", clean_mark.CLEAN_MARK)
FOLDERS: Final = (index.FOLDER, key_file.FOLDER, clean_files.FOLDER)
"""What is kept beside the log."""


class Stopped(NamedTuple):
    """A shard on the disk, after a clean stop."""

    number: int
    folder: Path
    end: int
    """Of its log."""
    generation: int
    """In which its log was written last."""


class BroughtIn(NamedTuple):
    objects: int
    bytes: int
    """That were sent."""


class _Stretch(NamedTuple):
    """Of a segment: what becomes a piece. The same file under several names is the same."""

    device: int
    inode: int
    low: int
    """Where in the file, …"""
    size: int
    """… and how many bytes."""


class _Beside(NamedTuple):
    device: int
    inode: int
    size: int


class BringingIn:
    def __init__(
        self,
        unused: Unused,
        store: ObjectStore,
        made: Made,
        progress: Progress | None = None,
    ) -> None:
        """`made`: as the database says it."""
        self._unused = unused
        self._store = store
        self._made = made
        self._progress = progress
        self._pieces: dict[_Stretch, list[tuple[Stopped, Piece, Path]]] = {}
        self._files: dict[_Beside, list[tuple[Stopped, str, Path]]] = {}
        self._objects: list[Row] = []
        self._piece_rows: list[Row] = []
        self._file_rows: list[Row] = []
        self._sent = self._total = 0

    async def run(self, shards: Sequence[Stopped], snapshot: tuple[int, bytes]) -> BroughtIn:
        """`snapshot`: of the shared catalog, with its version. Raises StartError, OSError, DatabaseUnavailableError,
        StoreUnavailableError; the cluster is unused then."""
        for shard in shards:
            await asyncio.to_thread(self._look, shard)
        self._total = sum(each.size for each in self._pieces) + sum(each.size for each in self._files)
        await in_parallel(self._send_piece, list(self._pieces), AT_ONCE)
        await in_parallel(self._send_file, list(self._files), AT_ONCE)
        for shard in shards:
            meta = msgspec.json.encode(Identity(identity.FORMAT, self._made.cluster_id, shard.number))
            await self._send_side_file(meta, [(shard.number, identity.PATH)])
        try:
            await self._unused.fill_unused(self._rows(shards, snapshot))
        except DatabaseUnavailableError as error:
            if not await is_committed(error, self._is_there, "the cluster is not empty"):
                raise
        return BroughtIn(len(self._objects), self._sent)

    async def _is_there(self) -> bool:
        key, _ = self._objects[-1]  # whose name nobody else has made
        return await self._unused.names_object(key)

    def _look(self, shard: Stopped) -> None:
        """Find out which files it has. Raises StartError, OSError."""
        fs = OsFileSystem(shard.folder, read_only=True)
        segments = [(start, path) for start, path in list_segments(fs) if start < shard.end]
        ends = [*(start for start, _ in segments[1:]), shard.end]
        for (start, name), end in zip(segments, ends, strict=True):
            path = shard.folder / name
            found = path.stat()
            if found.st_size < end - start:
                raise StartError(f"{path} has {found.st_size} bytes, and should have {end - start}")
            for low in range(start, end, MOST_BYTES):
                piece = Piece(low, min(low + MOST_BYTES, end), 0, start)
                stretch = _Stretch(found.st_dev, found.st_ino, low - start, piece.size)
                self._pieces.setdefault(stretch, []).append((shard, piece, path))
        names = [name for name in BESIDE if (shard.folder / name).exists()]
        names += [f"{folder}/{name}" for folder in FOLDERS for name in fs.listdir(folder)]
        for name in names:
            found = (shard.folder / name).stat()
            beside = _Beside(found.st_dev, found.st_ino, found.st_size)
            self._files.setdefault(beside, []).append((shard, name, shard.folder / name))

    async def _send_piece(self, stretch: _Stretch) -> None:
        holders = self._pieces[stretch]
        data = await asyncio.to_thread(_read, holders[0][2], stretch.low, stretch.size)
        crc = crc32c(data)
        key = naming.make(self._made.cluster_id, naming.COMMITTED, 0)
        commits = [Commit(shard.number, shard.generation, (piece._replace(crc=crc),)) for shard, piece, _ in holders]
        made, placed = footer.build_shared(0, key, commits, data)
        await put_once(self._store, key, made)
        self._objects.append((key, len(made)))
        self._piece_rows += [(commit.shard, *piece) for commit in placed for piece in commit.pieces]
        self._count(stretch.size)

    async def _send_file(self, beside: _Beside) -> None:
        holders = self._files[beside]
        data = await asyncio.to_thread(holders[0][2].read_bytes)
        await self._send_side_file(data, [(shard.number, name) for shard, name, _ in holders])
        self._count(beside.size)

    async def _send_side_file(self, data: bytes, holders: Sequence[tuple[int, str]]) -> None:
        numbers, paths = {number for number, _ in holders}, {name for _, name in holders}
        (path,) = paths
        named = naming.FileName(numbers.pop() if len(numbers) == 1 else naming.ALL_SHARDS, 0, path)
        key = naming.make(self._made.cluster_id, naming.FILE, 0, named)
        await put_once(self._store, key, data)
        self._objects.append((key, len(data)))
        for number, name in holders:
            self._file_rows.append((number, *SideFile(name, key, len(data), crc32c(data))))

    def _count(self, size: int) -> None:
        self._sent += size
        if self._progress is not None:
            self._progress(self._sent, self._total)

    def _rows(self, shards: Sequence[Stopped], snapshot: tuple[int, bytes]) -> Iterator[Rows]:
        for table, rows in (("object", self._objects), ("piece", self._piece_rows), ("file", self._file_rows)):
            for at in range(0, len(rows), ROWS):
                yield Rows(table, rows[at : at + ROWS])
        version, data = snapshot
        yield Rows("snapshot", [(version, data, crc32c(data))])
        yield Rows("shard", [(shard.number, shard.generation, shard.end) for shard in shards])


def _read(path: Path, low: int, size: int) -> bytes:
    """Raises StartError where there is less, OSError."""
    with path.open("rb") as file:
        found = os.pread(file.fileno(), size, low)
    if len(found) != size:
        raise StartError(f"{path} ends at {low + len(found)}, and not behind {low + size}")
    return found
