"""A cluster in memory that no node has served, and its shards, open in one process, once something was brought in."""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any

from halfmoon.cluster.backup.ports import Made
from halfmoon.cluster.backup.tables import Rows
from halfmoon.cluster.engine.backing import Backing
from halfmoon.cluster.engine.cached_files import CachedFiles
from halfmoon.cluster.engine.committing import RowCommitter
from halfmoon.cluster.engine.database import Contents, SideFile
from halfmoon.cluster.engine.pieces import Durability, Piece, check_whole
from halfmoon.cluster.engine.storage import ShardStorage
from halfmoon.cluster.store import Cluster, News
from halfmoon.config.settings import Settings
from halfmoon.core.crc import crc32c
from halfmoon.core.storage.files import FileSystem, OsFileSystem
from halfmoon.core.storage.local import read_memory
from halfmoon.core.storage.storage import MakeStorage
from halfmoon.errors import StartError
from tests.cluster.engine.doubles import MemoryDatabase, MemoryStore
from tests.core.bench import VirtualClock
from tests.server.workers.import_bench import Shards

ID = "a-cluster"


class MemoryUnused:
    """See cluster/backup/ports.Unused."""

    def __init__(self, fast: int, objects: int = 0) -> None:
        self.database = MemoryDatabase([Durability.FAST] * fast + [Durability.OBJECT] * objects)
        self.store = MemoryStore()
        self.fast = fast
        self.snapshot: tuple[int, bytes] | None = None

    async def check_unused(self) -> Made:
        if self.snapshot is not None or any(shard.head.epoch for shard in self.database.shards.values()):
            raise StartError("the cluster is not empty")
        return Made(ID, len(self.database.shards), self.fast)

    async def names_object(self, key: str) -> bool:
        return key in self.database.objects

    async def fill_unused(self, rows: Iterator[Rows]) -> None:
        await self.check_unused()
        shards = self.database.shards
        for table, found in rows:
            for row in found:
                if table == "object":
                    self.database._new_object(*row)
                elif table == "piece":
                    shards[row[0]].pieces[row[1]] = Piece(*row[1:])
                elif table == "file":
                    shards[row[0]].files[row[1]] = SideFile(*row[1:])
                elif table == "shard":
                    shard, epoch, end = row
                    shards[shard].head = shards[shard].head._replace(epoch=epoch, end=end)
                else:
                    version, data, crc = row
                    assert table == "snapshot"
                    assert crc32c(data) == crc
                    self.snapshot = version, data

    def check(self) -> None:
        """Each shard's pieces follow each other, and no object is named that is not there."""
        for shard in self.database.shards.values():
            check_whole(shard.head, [piece for _, piece in sorted(shard.pieces.items())])
            for piece in shard.pieces.values():
                data = self.store.objects[piece.key][piece.at : piece.at + piece.size]
                assert crc32c(data) == piece.crc
        assert set(self.database.objects) == set(self.store.objects)


class ClusterShards(Shards):
    """A context manager."""

    def __init__(self, unused: MemoryUnused, cache: Path, clock: VirtualClock) -> None:
        unused.check()
        self._unused = unused
        self._cache = cache
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._keys = itertools.count()
        self._committer: Any = None
        assert unused.snapshot is not None
        made = Cluster(ID, len(unused.database.shards))
        self._open_all(clock, made, News(unused.snapshot, []), made.shards)

    def _place(self, number: int) -> tuple[FileSystem, MakeStorage]:
        contents = asyncio.run_coroutine_threadsafe(self._take(number), self._loop).result()
        backing = Backing(
            self._loop, self._unused.database, self._unused.store, self._committer, contents,
            lambda _path: f"{ID}/f/{next(self._keys)}",
        )  # fmt: skip
        files = CachedFiles(OsFileSystem(self._cache / f"shard-{number}"), backing)

        def storage(_fs: FileSystem, settings: Settings) -> ShardStorage:
            return ShardStorage(files, settings, backing, read_memory(settings, 1, 1))

        return files, storage

    async def _take(self, number: int) -> Contents:
        database = self._unused.database
        if self._committer is None:
            self._committer = RowCommitter(database)
            self._me = await database.register(1, "host", 1, "")
        await database.renew(self._me)  # a slow machine needs longer than a lease for all shards
        head = database.shards[number].head
        assert await database.take(number, head.epoch, self._me) is not None
        return await database.contents(number)

    def __enter__(self) -> ClusterShards:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
        self._loop.call_soon_threadsafe(self._committer.close)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
