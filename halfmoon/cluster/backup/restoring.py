"""A cluster made of a backup: objects into the store first, then everything into the database in one transaction.

So a restore that was interrupted has changed no database, and is given again: what is in the store already stays.
Where the database does not say whether it has committed, it is asked what it has.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path

from halfmoon.cluster.backup.committed import is_committed
from halfmoon.cluster.backup.copied import Copied, Manifest, Wanted
from halfmoon.cluster.backup.parallel import Progress, in_parallel
from halfmoon.cluster.backup.ports import Target
from halfmoon.cluster.backup.saving import PARALLEL, PAUSE_S
from halfmoon.cluster.engine.database import DatabaseUnavailableError
from halfmoon.cluster.engine.objects import ObjectStore
from halfmoon.cluster.engine.trying import put_once, try_again
from halfmoon.errors import StartError


class Restoring:
    def __init__(self, target: Target, store: ObjectStore, folder: Path, *, progress: Progress | None = None) -> None:
        self._target = target
        self._store = store
        self._copied = Copied(folder)
        self._progress = progress
        self._done = self._total = 0

    async def run(self, newest_format: int, ready: Callable[[], None] = lambda: None) -> Manifest:
        """`newest_format`: of the tables that this program makes. `ready`: called when all is well, before the database
        has anything. Raises StartError, OSError, DatabaseUnavailableError, StoreUnavailableError."""
        manifest = self._copied.manifest()
        if manifest.database_format > newest_format:
            raise StartError(f"the backup is of a newer version: its tables have format {manifest.database_format}")
        await self._target.check_empty()
        objects = self._copied.objects(manifest)
        await try_again(lambda: self._check_store(f"{manifest.cluster_id}/", objects), PAUSE_S)
        self._total = sum(each.size for each in objects.values())
        await in_parallel(self._put, objects.values(), PARALLEL)
        ready()
        told: list[str] = []
        try:
            await self._target.fill(self._copied.rows(manifest), manifest.columns, told)
        except DatabaseUnavailableError as error:
            if not told or not await is_committed(error, lambda: self._has(told[0]), "there is one already"):
                raise
        return manifest

    async def _has(self, lineage: str) -> bool:
        return await self._target.lineage() == lineage

    async def _check_store(self, prefix: str, objects: Mapping[str, Wanted]) -> None:
        """Raises StartError where something else is there: each cluster deletes what it does not know."""
        async for part in self._store.list(prefix):
            for each in part:
                if each.key not in objects:
                    raise StartError(
                        f"the store has {each.key}, which the backup has not: the cluster that was backed up is there. "
                        "Name another bucket or prefix in $.cluster.store"
                    )

    async def _put(self, wanted: Wanted) -> None:
        await asyncio.to_thread(self._copied.check, wanted)
        data = await asyncio.to_thread(self._copied.path_of(wanted.key).read_bytes)
        await put_once(self._store, wanted.key, data, PAUSE_S)
        self._done += wanted.size
        if self._progress is not None:
            self._progress(self._done, self._total)
