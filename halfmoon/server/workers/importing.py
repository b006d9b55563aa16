"""`halfmoon cluster import`: makes a data directory of shards from one of one process, in place and offline.

No record is copied: files are linked (`staging`).

    DIR/import.new/     all of it is made here: shard-00 …, catalog.sqlite
    DIR/shard-00 …      moved to their places
    DIR/catalog.sqlite  moved last: from here on the directory is one of shards
    DIR/before-import/  where the files of the one process go then

Until the catalog is in its place the directory is that of one process, whatever else is in it; afterwards it is one of
shards, and only files may still have to be moved. Where import.new is, an import has begun and not ended, and all
shards beside it are its own: the next one begins anew, or goes on with moving.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from pathlib import Path

from msgspec import Struct

from halfmoon.cluster.backup.parallel import Progress
from halfmoon.cluster.placement import MOST_SHARDS, Layout
from halfmoon.cluster.sqlite_store import SqliteStore
from halfmoon.cluster.store import Cluster
from halfmoon.core import clean_files, clean_mark, identity
from halfmoon.core.clock import Clock
from halfmoon.core.storage import bounds, index
from halfmoon.core.storage.files import OsFileSystem
from halfmoon.core.storage.log_files import FOLDER
from halfmoon.errors import HalfmoonError, StartError
from halfmoon.server.clock import SystemClock
from halfmoon.server.workers.dividing import Division
from halfmoon.server.workers.plan import CATALOG, shard_folder
from halfmoon.server.workers.staging import Prepared, Staging
from halfmoon.services.credentials.node_key import NodeKey
from halfmoon.services.keyindex import key_file
from halfmoon.services.scrubber import saved as scrubber

MADE = "import.new"
BEFORE = "before-import"
_MOVED = (
    identity.PATH, "checkpoint", clean_mark.CLEAN_MARK, bounds.PATH, scrubber.PATH, FOLDER, index.FOLDER,
    key_file.FOLDER, clean_files.FOLDER,
)  # fmt: skip
"""The files of one process. The first one first: without it no program takes the rest for a data directory."""
MOST_MAPPED = 50_000
"""Files of one process; Linux allows 65,530 unless told otherwise (vm.max_map_count)."""


class Imported(Struct):
    cluster_id: str
    shards: int
    topics: int
    """That the shards share."""
    segments: int
    """Of the log, each of which has a name in every shard."""
    transactions: int
    """That were not ended, and are aborted."""
    transactional_ids: int
    """That are forgotten: their producers get new ids."""
    least_workers: int
    """With fewer, one process would have more files mapped than systems let it."""


def import_directory(
    directory: Path, shards: int, progress: Progress | None = None, clock: Clock | None = None
) -> Imported | None:
    """None where the directory is one of shards, and an import of it has now been brought to its end. Raises
    StartError, OSError."""
    if not 1 <= shards <= MOST_SHARDS:
        raise StartError(f"{shards} shards; from 1 to {MOST_SHARDS} are possible")
    if not directory.is_dir():
        raise StartError("there is no such directory")
    fs = OsFileSystem(directory)
    fs.lock()
    try:
        if (directory / CATALOG).exists():
            if not any((directory / name).exists() for name in (MADE, *_MOVED)):
                raise StartError("this is the data directory of several workers already")
            _put_aside(fs)
            return None
        return _Import(fs, shards, progress or (lambda _done, _all: None), clock or SystemClock()).run()
    finally:
        fs.unlock()


class _Import:
    def __init__(self, fs: OsFileSystem, shards: int, progress: Progress, clock: Clock) -> None:
        self._fs = fs
        self._root = fs.root
        self._made = fs.root / MADE
        self._shards = shards
        self._staging = Staging(fs, MADE, Layout.of_workers(shards), progress, clock)
        self._cluster_id = self._staging.meta.cluster_id

    def run(self) -> Imported:
        self._check()
        self._clear()
        prepared = self._staging.prepare()
        try:
            links = self._make_all(prepared)
        except (OSError, HalfmoonError):
            with contextlib.suppress(OSError):
                self._clear()  # its links would keep what expires
            raise
        self._fs.rename(f"{MADE}/{CATALOG}", CATALOG)
        self._fs.sync_directory("")
        _put_aside(self._fs)
        topics = len(prepared.division.shared.catalog.by_number)
        least = -(-self._shards * links // MOST_MAPPED)
        return Imported(
            self._cluster_id, self._shards, topics, len(prepared.segments), prepared.transactions,
            prepared.transactional_ids, least,
        )  # fmt: skip

    def _make_all(self, prepared: Prepared) -> int:
        """Everything, but that it is not true yet; how many files each shard has."""
        links = self._staging.make(prepared)
        NodeKey(self._fs, os.urandom).make()  # else each worker makes one
        self._make_catalog(prepared.division)
        for number in range(self._shards):
            self._fs.rename(f"{MADE}/{shard_folder(Path(), number)}", str(shard_folder(Path(), number)))
        self._fs.sync_directory("")
        return links

    def _check(self) -> None:
        """Raises StartError."""
        if (self._root / BEFORE).exists():
            raise StartError(f"there is {BEFORE} in it, of an earlier import: remove it, or move it away")
        if not self._made.exists() and _shards_in(self._root):
            raise StartError(
                f"there are shards in it, and no {CATALOG}: is it the rest of a directory of several workers?"
            )
        self._staging.check_links()

    def _clear(self) -> None:
        """Remove what an import has left that did not come to its end. What says that it did not, last."""
        if self._made.exists():
            for folder in _shards_in(self._root):
                shutil.rmtree(folder)
            self._fs.sync_directory("")
            shutil.rmtree(self._made)
            self._fs.sync_directory("")

    def _make_catalog(self, division: Division) -> None:
        path = self._made / CATALOG
        SqliteStore.create(path, Cluster(self._cluster_id, self._shards))
        store = SqliteStore(path)
        try:
            store.keep(division.shared.version, division.shared.save())
        finally:
            store.close()
        with contextlib.suppress(FileNotFoundError):
            if path.with_name(f"{CATALOG}-wal").stat().st_size:
                raise StartError(f"{CATALOG} could not be written as one file")


def _shards_in(root: Path) -> list[Path]:
    return sorted(each for each in root.glob("shard-*") if each.is_dir())


def _put_aside(fs: OsFileSystem) -> None:
    """The directory is one of shards: move the files of one process away. What says that this is not done, last."""
    fs.make_directory(BEFORE)
    for name in _MOVED:
        if (fs.root / name).exists():
            fs.rename(name, f"{BEFORE}/{name}")
            fs.sync_directory("")
    fs.sync_directory(BEFORE)
    shutil.rmtree(fs.root / MADE, ignore_errors=True)
    fs.sync_directory("")
