"""A data directory of several workers, copied and looked at as a whole: its shards, each a data directory of its own,
and the catalog that they share.

The catalog is copied last: it knows all that any shard was told, and a shard is not opened with an older one. The
copies of two shards are of different moments, some seconds apart; each is as whole as the copy of a directory of one
process.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from halfmoon.cluster.shared import SharedCatalog
from halfmoon.cluster.sqlite_store import SqliteStore
from halfmoon.cluster.store import CatalogUnavailableError
from halfmoon.config.settings import Settings
from halfmoon.core.catalog.catalog import Catalog
from halfmoon.errors import StartError
from halfmoon.offline import backup, verifying
from halfmoon.offline.backup import BackupReport, Copies, Progress
from halfmoon.offline.key_protected import KeyProtected, protected
from halfmoon.schema.shards import SHARED_CATALOG
from halfmoon.services.credentials.state import CredentialsState

FOLDERS = "shard-[0-9][0-9]*"


def of(directory: str | os.PathLike[str]) -> list[Path]:
    """The folders of its shards, in their order; none where it is the directory of one process."""
    root = Path(directory)
    return sorted(root.glob(FOLDERS)) if (root / SHARED_CATALOG).is_file() else []


@dataclass(slots=True)
class ShardsReport:
    """What a backup of all shards holds."""

    topics: int
    """That the shards share, internal ones included."""
    shards: dict[str, BackupReport] = field(default_factory=dict)
    """By the name of its folder."""


def copy(
    directory: str | os.PathLike[str], target: str | os.PathLike[str], progress: Progress | None = None
) -> ShardsReport:
    """Copy all shards and the catalog to `target`, which must not exist or be empty, the workers running or not. Raises
    StartError, OSError. What an attempt that failed leaves behind is no data directory: the catalog comes last."""
    root, goal = Path(directory), backup.new_directory(target)
    steps, copies = _Steps(of(root), progress), Copies()
    copied = {}
    for shard in of(root):
        with _named(shard):
            copied[shard.name] = backup.backup(shard, goal / shard.name, steps.next(), copies)
    _copy_catalog(root, goal)
    return ShardsReport(len(_read_catalog(goal)[0].by_number), copied)


def restore(saved: str | os.PathLike[str], directory: str | os.PathLike[str], progress: Progress | None = None) -> int:
    """Copy what `copy` wrote to `directory`, which must not exist or be empty; how many bytes the shards have. Raises
    StartError, OSError."""
    root, goal = Path(saved), backup.new_directory(directory)
    steps, copies = _Steps(of(root), progress), Copies()
    copied = 0
    for shard in of(root):
        with _named(shard):
            copied += backup.restore(shard, goal / shard.name, steps.next(), copies)
    _copy_catalog(root, goal)
    return copied


def verify(directory: str | os.PathLike[str], progress: Progress | None = None) -> dict[str, verifying.Report]:
    """Verify the catalog and each shard: the reports by the name of its folder. Raises StartError, OSError."""
    shards = of(directory)
    _read_catalog(Path(directory), whole=True)
    steps = _Steps(shards, progress)
    found = {}
    for shard in shards:
        with _named(shard):
            found[shard.name] = verifying.verify(shard, steps.next())
    return found


def key_protected(directory: str | os.PathLike[str], now_ms: int) -> KeyProtected:
    """As of offline.key_protected: credentials stand in the catalog. Raises StartError."""
    return protected(_read_catalog(Path(directory))[1], now_ms)


def _read_catalog(root: Path, whole: bool = False) -> tuple[Catalog, CredentialsState]:
    """`whole`: whether SQLite reads all of the file for this. Raises StartError where it is damaged."""
    path = root / SHARED_CATALOG
    catalog, credentials = Catalog(Settings()), CredentialsState()
    catalog.register((credentials,))
    store = SqliteStore(path)
    try:
        if whole:
            store.check()
        SharedCatalog(catalog).take(store.read(0))
    except CatalogUnavailableError as error:
        raise StartError(f"{path.name}: {error}") from error
    finally:
        store.close()
    return catalog, credentials


def _copy_catalog(root: Path, goal: Path) -> None:
    """As it is at one moment. Raises OSError, StartError."""
    store = SqliteStore(root / SHARED_CATALOG)
    try:
        store.copy(goal / SHARED_CATALOG)
    except CatalogUnavailableError as error:
        raise StartError(str(error)) from error
    finally:
        store.close()


class _Steps:
    """Progress over several folders, each of which counts the same."""

    def __init__(self, shards: list[Path], progress: Progress | None) -> None:
        self._count = len(shards)
        self._begun = 0
        self._progress = progress

    def next(self) -> Progress | None:
        progress, before, count = self._progress, self._begun, self._count
        self._begun += 1
        if progress is None:
            return None
        return lambda done, there: progress(before * there + done, count * there)


@contextlib.contextmanager
def _named(shard: Path) -> Iterator[None]:
    try:
        yield
    except StartError as error:
        raise StartError(f"{shard.name}: {error}") from error
