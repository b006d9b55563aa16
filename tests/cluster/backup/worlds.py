"""Clusters to be backed up and restored: their tables in memory, or in PostgreSQL; their objects in memory."""

from __future__ import annotations

import copy
import random
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from halfmoon.cluster.backup.ports import EPOCHS, FILLED_MEANWHILE, PINNED_S, Moment, Source, Target
from halfmoon.cluster.backup.tables import COLUMNS, Rows
from halfmoon.cluster.engine import footer
from halfmoon.cluster.engine.database import Commit, LogDatabase, SideFile
from halfmoon.cluster.engine.pieces import IN_DATABASE, Durability, Head, Piece
from halfmoon.cluster.store import Cluster
from halfmoon.core.crc import crc32c
from halfmoon.errors import StartError
from tests.cluster.engine.doubles import MemoryDatabase, MemoryStore
from tests.cluster.servers import postgres

ID = "a-cluster"
SKIPPED = 1_000_000
"""Incarnations, at least."""
KINDS = [Durability.FAST] * 2 + [Durability.OBJECT] * 2


class MemoryTables:
    """See cluster/backup/ports."""

    def __init__(self, database: MemoryDatabase | None) -> None:
        self.database = database
        self.is_cluster = database is not None
        self.catalog: list[tuple[int, bytes, int]] = []
        """Changes."""
        self.snapshots: list[tuple[int, bytes, int]] = []
        self._pins = 0
        self._dice = random.Random(5)

    @property
    def _there(self) -> MemoryDatabase:
        assert self.database is not None
        return self.database

    async def pin(self) -> int:
        self._pins += 1
        now_s = self._there._now_s()
        self._there.pins[self._pins] = now_s, now_s + PINNED_S
        return self._pins

    async def keep_pinned(self, number: int) -> bool:
        since_s, until_s = self._there.pins[number]
        now_s = self._there._now_s()
        if until_s <= now_s:
            return False
        self._there.pins[number] = since_s, now_s + PINNED_S
        return True

    async def unpin(self, number: int) -> None:
        self._there.pins.pop(number, None)

    def _used(self) -> dict[str, int]:
        there = self._there
        keys = {piece.key for shard in there.shards.values() for piece in shard.pieces.values()} - {IN_DATABASE}
        keys |= {file.key for shard in there.shards.values() for file in shard.files.values()}
        return {key: there.objects[key].size for key in keys}

    async def read(self, told: list[Moment]) -> AsyncIterator[Rows]:
        found = copy.deepcopy(self._there.shards)
        used, changes, snapshots = self._used(), list(self.catalog), list(self.snapshots)
        told.append(Moment("2026-01-01T00:00:00.000+00:00", 2))
        yield Rows("cluster", [(ID, len(found))])
        heads = [shard.head for shard in found.values()]
        yield Rows("shard", [(head.shard, str(head.durability), head.epoch, head.end) for head in heads])
        yield Rows("object", list(used.items()))
        for number, shard in found.items():
            for piece in shard.pieces.values():
                start, end, crc, segment, key, at = piece
                if key == IN_DATABASE:
                    yield Rows("wal", [(number, start, end, crc, segment, shard.frames[start])])
                else:
                    yield Rows("piece", [(number, start, end, crc, segment, key, at)])
            yield Rows("file", [(number, *file) for file in shard.files.values()])
        yield Rows("change", changes)
        yield Rows("snapshot", snapshots)

    async def check_empty(self) -> None:
        if self.is_cluster:
            raise StartError("the database has a cluster already")

    async def fill(self, rows: Iterator[Rows], columns: Mapping[str, Sequence[str]], told: list[str]) -> None:
        found = MemoryDatabase([])
        catalog: list[Any] = []
        snapshots: list[Any] = []
        is_cluster = False
        for table, each in rows:
            assert list(columns[table]) == list(COLUMNS[table])
            is_cluster |= table == "cluster"
            for row in each:
                if table == "shard":
                    shard, durability, epoch, end = row
                    made = MemoryDatabase([Durability(durability)]).shards[0]
                    made.head = Head(shard, Durability(durability), epoch + EPOCHS, None, end, restored=True)
                    found.shards[shard] = made
                elif table == "object":
                    found._new_object(*row)
                elif table == "piece":
                    found.shards[row[0]].pieces[row[1]] = Piece(*row[1:])
                elif table == "wal":
                    found.shards[row[0]].pieces[row[1]] = Piece(*row[1:5])
                    found.shards[row[0]].frames[row[1]] = row[5]
                elif table == "file":
                    found.shards[row[0]].files[row[1]] = SideFile(*row[1:])
                elif table == "change":
                    catalog.append(tuple(row))
                elif table == "snapshot":
                    snapshots.append(tuple(row))
        await self.check_empty()
        found.begin_anew(SKIPPED * self._dice.randint(1, 1_000))
        told.append(await found.lineage())
        self.database, self.catalog, self.snapshots, self.is_cluster = found, catalog, snapshots, is_cluster

    async def finish(self, cluster: Cluster, version: int, snapshot: bytes, lineage: str) -> None:
        await self.check_empty()
        if await self._there.lineage() != lineage:
            raise StartError(FILLED_MEANWHILE)
        for shard in self._there.shards.values():
            shard.head = shard.head._replace(owner=None)
        self._there._nodes.clear()
        assert cluster.shards == len(self._there.shards)
        self.snapshots, self.is_cluster = [(version, snapshot, crc32c(snapshot))], True

    async def lineage(self) -> str:
        await self.cluster_id()
        return await self._there.lineage()

    async def cluster_id(self) -> str:
        if not self.is_cluster:
            raise StartError("the database has no cluster")
        return ID

    async def needed(self) -> Mapping[str, int]:
        return self._used()

    async def bring_back(self) -> int:
        there = self._there
        if any(node.alive for node in await there.nodes()):
            raise StartError("stop the nodes first: 1")
        for shard in there.shards.values():
            shard.head = shard.head._replace(epoch=shard.head.epoch + EPOCHS, owner=None, wanted=None, restored=True)
        there.begin_anew(SKIPPED)
        return len(there.shards)


class World:
    """A cluster, as its parts are seen."""

    def __init__(self, tables: Any, database: LogDatabase, store: MemoryStore) -> None:
        self.source: Source = tables
        self.target: Target = tables
        self.tables = tables
        self.database = database
        self.store = store
        self._dice = random.Random(4)
        self._keys = 0

    async def own_all(self) -> None:
        self.me = await self.database.register(1, "host", 7, "")
        for head in await self.database.heads():
            assert await self.database.take(head.shard, head.epoch, self.me) is not None

    def _key(self) -> str:
        self._keys += 1
        return f"{ID}/o/{self._keys % 7:02x}/2026010100/1-{self._keys}"

    async def write(self, shard: int, size: int = 3_000) -> Piece:
        """A commit of a shard, as its durability has it."""
        head = next(head for head in await self.database.heads() if head.shard == shard)
        data = self._dice.randbytes(size)
        commit = Commit(shard, head.epoch, (Piece(head.end, head.end + size, crc32c(data), 0),))
        if head.durability is Durability.FAST:
            assert await self.database.commit_rows([commit], [[data]]) == {shard}
            return commit.pieces[0]
        key = self._key()
        made, placed = footer.build(1, key, [commit], [[data]])
        await self.store.put(key, made)
        assert await self.database.commit_object(key, len(made), placed) == {shard}
        return placed[0].pieces[0]

    async def put_file(self, shard: int, path: str) -> SideFile:
        head = next(head for head in await self.database.heads() if head.shard == shard)
        data = self._dice.randbytes(700)
        file = SideFile(path, self._key(), len(data), crc32c(data))
        await self.store.put(file.key, data)
        assert await self.database.put_files(shard, head.epoch, [file])
        return file

    async def fill(self) -> None:
        await self.own_all()
        for shard in range(len(KINDS)):
            for _ in range(3):
                await self.write(shard)
            await self.put_file(shard, "index/a")

    async def contents(self) -> dict[int, Any]:
        """By shard: its end, its pieces with their bytes, and its files with theirs."""
        found: dict[int, Any] = {}
        for number in range(len(KINDS)):
            head, pieces, files = await self.database.contents(number)
            rows = dict(await self.database.frames(number, 0, head.end))
            bytes_of = [
                rows[piece] if piece.key == IN_DATABASE
                else await self.store.get(piece.key, piece.at, piece.at + piece.size)
                for piece in pieces
            ]  # fmt: skip
            files_of = [(file, await self.store.get(file.key, 0, file.size)) for file in files]
            found[number] = (head.end, list(zip(pieces, bytes_of, strict=True)), files_of)
        return found


@asynccontextmanager
async def memory(*, empty: bool = False) -> AsyncIterator[World]:
    tables = MemoryTables(None if empty else MemoryDatabase(KINDS))
    yield World(tables, _Late(tables), MemoryStore())


class _Late:
    """The database that is there once the tables are filled."""

    def __init__(self, tables: MemoryTables) -> None:
        self._tables = tables

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tables._there, name)


@asynccontextmanager
async def real(*, empty: bool = False) -> AsyncIterator[World]:
    server = postgres()
    from halfmoon.cluster.postgres.connecting import Access
    from halfmoon.cluster.postgres.logs import PostgresLogs
    from halfmoon.cluster.postgres.schema import create
    from halfmoon.cluster.postgres.tables import PostgresTables

    access = Access(await server.new_database())
    if not empty:
        await create(access, ID, 2, 2)
        connection = await access.connect()
        data = msgspec.msgpack.encode((b"a record",))
        await connection.execute("insert into change (version, records, crc) values (4, $1, $2)", data, crc32c(data))
        await connection.execute("insert into snapshot values (3, $1, $2)", b"all", crc32c(b"all"))
        await connection.close()
    logs = await PostgresLogs.open(access)
    try:
        yield World(PostgresTables(access), logs, MemoryStore())
    finally:
        await logs.close()
