"""A cluster's storage engine for whoever wants one log: over a database and a store in memory."""

from __future__ import annotations

import asyncio
import errno
import itertools
import os
import threading
import uuid
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from halfmoon.cluster.engine.backing import Backing
from halfmoon.cluster.engine.cached_files import CachedFiles
from halfmoon.cluster.engine.committing import ObjectCommitter, RowCommitter
from halfmoon.cluster.engine.database import Commit, DatabaseUnavailableError
from halfmoon.cluster.engine.pieces import IN_DATABASE, Durability, Piece
from halfmoon.cluster.engine.storage import ShardStorage
from halfmoon.config.settings import Settings, load_settings
from halfmoon.core.storage.files import FileSystem
from halfmoon.core.storage.local import read_memory
from halfmoon.core.storage.storage import MakeStorage
from tests.cluster import servers
from tests.cluster.engine.doubles import MemoryDatabase, MemoryStore

T = TypeVar("T")
Services = Callable[[Durability], Coroutine[Any, Any, tuple[Any, Any]]]
"""Make a database with one shard of this durability, and a store."""

INTERVAL_S = 0.001
OBJECT_BYTES = 1 << 20


class FailingDatabase:
    """Commits have no end once the disk of the log's cache is said to fail syncs, and the shard stops: the contract's
    way to say that what is written will not be durable."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self.fails: Callable[[], bool] = lambda: False
        self.stop: Callable[[OSError], None] = lambda error: None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def commit_rows(self, commits: Sequence[Commit], frames: Sequence[Sequence[bytes]]) -> set[int]:
        self._look()
        return set(await self._inner.commit_rows(commits, frames))

    async def commit_object(self, key: str, size: int, commits: Sequence[Commit]) -> set[int]:
        self._look()
        return set(await self._inner.commit_object(key, size, commits))

    def _look(self) -> None:
        if self.fails():
            self.stop(OSError(errno.EIO, os.strerror(errno.EIO)))
            raise DatabaseUnavailableError("no answer")


class CountingStore(MemoryStore):
    fetched_bytes = 0
    most_at_once = 0
    _at_once = 0

    async def get(self, key: str, start: int, end: int) -> bytes:
        self._at_once += 1
        self.most_at_once = max(self.most_at_once, self._at_once)
        await asyncio.sleep(0)
        found = await super().get(key, start, end)
        self._at_once -= 1
        self.fetched_bytes += len(found)
        return found


class OneShard:
    """Each storage that is made is a takeover: by a node of its own, which finds what the one before has committed."""

    def __init__(self, kind: Durability, services: Services | None = None) -> None:
        """`services`: None: in memory."""
        self.kind = kind
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        database: Any = MemoryDatabase([kind])
        self.store: Any = CountingStore()
        if services is not None:
            database, self.store = self._in_loop(services(kind))
        self.database: Any = FailingDatabase(database)
        self._numbers = itertools.count()
        self._committers: list[Any] = []
        self.backing: Backing | None = None
        """Of the last."""

    def _in_loop(self, call: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(call, self._loop).result()

    async def _take(self) -> Any:
        database, numbers = self.database, self._numbers
        committer: Any = RowCommitter(database)
        if self.kind is Durability.OBJECT:
            committer = ObjectCommitter(database, self.store, 1, lambda: f"o/{next(numbers)}", INTERVAL_S, OBJECT_BYTES)
        self._committers.append(committer)
        head = next(head for head in await database.heads() if head.durability is self.kind)
        if head.owner is not None:
            await database.leave(head.owner)
        incarnation = await database.register(1, "host", 1, "")
        assert await database.take(head.shard, head.epoch, incarnation) is not None
        return committer, await database.contents(head.shard)

    def make(self, fs: FileSystem, settings: Settings) -> ShardStorage:
        committer, contents = self._in_loop(self._take())
        self.database.fails = lambda: getattr(fs, "fail_sync", False)
        self.backing = Backing(
            self._loop, self.database, self.store, committer, contents, lambda path: f"s/{path}-{next(self._numbers)}"
        )
        self.database.stop = self.backing.freeze
        return ShardStorage(CachedFiles(fs, self.backing), settings, self.backing, read_memory(settings, 1, 1))

    @staticmethod
    def settings(**log: Any) -> Settings:
        return load_settings({"log": log}, {}, {})

    def pieces(self) -> list[Piece]:
        return [piece for _, piece in sorted(self.database.shards[0].pieces.items())]

    def objects_alive(self) -> set[str]:
        return {key for key, found in self.database.objects.items() if found.dead_s is None}

    def damage(self) -> None:
        """A bit of the first piece flips."""
        piece = self.pieces()[0]
        if piece.key == IN_DATABASE:
            frames = self.database.shards[0].frames
            frames[piece.start] = _flipped(frames[piece.start], 50)
        else:
            self.store.objects[piece.key] = _flipped(self.store.objects[piece.key], piece.at + 50)

    def close(self) -> None:
        async def close() -> None:
            for committer in self._committers:
                committer.close()
            await asyncio.sleep(0)
            await self.database.close()

        self._in_loop(close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


def _flipped(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


@contextmanager
def one_shard(kind: Durability, services: Services | None = None) -> Iterator[OneShard]:
    shard = OneShard(kind, services)
    try:
        yield shard
    finally:
        shard.close()


@contextmanager
def of_a_cluster(kind: Durability, services: Services | None = None) -> Iterator[MakeStorage]:
    with one_shard(kind, services) as shard:
        yield shard.make


async def real_services(kind: Durability) -> tuple[Any, Any]:
    """A database of PostgreSQL, and a store of versitygw. Skips the test where they are not installed."""
    database, store = servers.postgres(), servers.object_store()
    from halfmoon.cluster.postgres.connecting import Access
    from halfmoon.cluster.postgres.logs import PostgresLogs
    from halfmoon.cluster.postgres.schema import create
    from halfmoon.cluster.s3 import S3

    access = Access(await database.new_database())
    await create(access, "a-cluster", 1, int(kind is Durability.OBJECT))
    return await PostgresLogs.open(access), S3.open(f"{store.url}/{uuid.uuid4().hex}", store.settings)
