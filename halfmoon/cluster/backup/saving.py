"""A backup of a cluster whose nodes may serve meanwhile.

What the database says is read as of one moment. What was acknowledged before that moment is in it: it was committed
then. Objects never change, and none is deleted that was needed when the pin was made: so they can be copied afterwards,
however long that takes.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from pathlib import Path
from typing import Final, NamedTuple

from halfmoon.cluster.backup.copied import FORMAT, Copied, Manifest, Objects, Wanted
from halfmoon.cluster.backup.parallel import Progress, in_parallel
from halfmoon.cluster.backup.ports import PINNED_S, Moment, Source
from halfmoon.cluster.backup.tables import COLUMNS, TablesWriter
from halfmoon.cluster.engine.database import DatabaseUnavailableError
from halfmoon.cluster.engine.objects import ObjectMissingError, ObjectStore
from halfmoon.cluster.engine.trying import try_again
from halfmoon.errors import StartError

PARALLEL: Final = 8
"""Objects that are copied at once."""
PART_BYTES: Final = 8 << 20
PAUSE_S: Final = 1.0


class Report(NamedTuple):
    """Of a backup that was made just now."""

    manifest: Manifest
    linked: int
    """Objects that share their bytes with the backup before."""


class Saving:
    def __init__(
        self,
        source: Source,
        store: ObjectStore,
        folder: Path,
        *,
        base: Path | None = None,
        progress: Progress | None = None,
    ) -> None:
        """`folder`: which is not there, or empty. `base`: an earlier backup of this cluster on the same file system:
        objects that are in it are linked."""
        self._source = source
        self._store = store
        self._copied = Copied(folder)
        self._base = None if base is None else Copied(base)
        self._progress = progress
        self._done = self._total = self._linked = 0

    async def run(self) -> Report:
        """Raises StartError, OSError, DatabaseUnavailableError, StoreUnavailableError. What is left behind then is no
        backup."""
        folder = self._copied.folder
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise StartError(f"{folder} exists already")
        known = set() if self._base is None else set(self._base.objects(self._base.manifest()))
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with contextlib.suppress(PermissionError):  # it was there, and is another user's: the files are our own
            folder.chmod(0o700)
        pin = await self._source.pin()
        keeping = asyncio.ensure_future(self._keep(pin))
        copying = asyncio.ensure_future(self._copy(known))
        try:
            await asyncio.wait([keeping, copying], return_when=asyncio.FIRST_COMPLETED)
            if not copying.done():
                keeping.result()  # which raises
            return copying.result()
        finally:
            for task in (keeping, copying):
                task.cancel()
            await asyncio.gather(keeping, copying, return_exceptions=True)
            with contextlib.suppress(DatabaseUnavailableError):  # it ends of itself, and the backup is whole or is not
                await self._source.unpin(pin)

    async def _keep(self, pin: int) -> None:
        while True:
            await asyncio.sleep(PINNED_S / 10)
            try:
                kept = await self._source.keep_pinned(pin)
            except DatabaseUnavailableError:
                continue  # the pin lasts longer than that
            if not kept:
                raise StartError("the database could not be reached for long: objects may have been deleted meanwhile")

    async def _copy(self, known: set[str]) -> Report:
        moments: list[Moment] = []
        objects = Objects(COLUMNS)
        cluster_id, shards = "", 0
        writer = TablesWriter(self._copied.tables)
        try:
            async for rows in self._source.read(moments):
                writer.add(rows)
                objects.see(rows)
                if rows.table == "cluster":
                    ((cluster_id, shards),) = rows.rows
            await asyncio.to_thread(writer.sync)
        finally:
            writer.close()
        self._total = objects.bytes

        async def copy(wanted: Wanted) -> None:
            await self._copy_one(wanted, wanted.key in known)
            self._done += wanted.size
            if self._progress is not None:
                self._progress(self._done, self._total)

        await in_parallel(copy, objects.by_key.values(), PARALLEL)
        manifest = Manifest(
            format=FORMAT, cluster_id=cluster_id, database_format=moments[0].format, made_at=moments[0].at,
            shards=shards, rows=writer.counts, columns={table: list(names) for table, names in COLUMNS.items()},
            tables_bytes=writer.size, objects=len(objects.by_key), objects_bytes=objects.bytes,
        )  # fmt: skip
        await asyncio.to_thread(self._copied.finish, manifest)
        return Report(manifest, self._linked)

    async def _copy_one(self, wanted: Wanted, is_known: bool) -> None:
        path = self._copied.path_of(wanted.key)
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if is_known and await asyncio.to_thread(self._link, wanted, path):
            self._linked += 1
            return
        with path.open("xb") as file:
            os.fchmod(file.fileno(), 0o600)
            for at in range(0, wanted.size, PART_BYTES):
                data = await self._get(wanted.key, at, min(at + PART_BYTES, wanted.size))
                await asyncio.to_thread(file.write, data)
            file.flush()
            await asyncio.to_thread(os.fsync, file.fileno())
        await asyncio.to_thread(self._copied.check, wanted)

    def _link(self, wanted: Wanted, path: Path) -> bool:
        """Where the copy that is there is whole."""
        assert self._base is not None
        try:
            self._base.check(wanted)
            os.link(self._base.path_of(wanted.key), path)
        except (OSError, StartError):
            return False
        return True

    async def _get(self, key: str, start: int, end: int) -> bytes:
        try:
            return await try_again(lambda: self._store.get(key, start, end), PAUSE_S)
        except ObjectMissingError:
            raise StartError(f"object {key} is gone from the store") from None
