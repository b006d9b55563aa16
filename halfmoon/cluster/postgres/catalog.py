"""The catalog in PostgreSQL, as cluster/store.CatalogStore says it.

Whoever changes it holds the cluster's row meanwhile. Others hear of a change from the node that has made it, and by
asking.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, TypeVar

import asyncpg

from halfmoon.cluster.catalog_rows import CHANGES, KEPT, LAST, change_of, newest_of, news_of
from halfmoon.cluster.engine.database import DatabaseUnavailableError
from halfmoon.cluster.postgres.connecting import Access, translated
from halfmoon.cluster.postgres.schema import check_known
from halfmoon.cluster.store import CatalogUnavailableError, Cluster, News
from halfmoon.core.crc import crc32c

T = TypeVar("T")

_HOLD: Final = "select from cluster for update"
_CHANGE_NOTHING: Final = "update cluster set shards = shards"


class PostgresStore:
    """One thread calls it; it has a connection and an event loop of its own. Raises StartError."""

    def __init__(self, access: Access) -> None:
        self._access = access
        self._runner = asyncio.Runner()
        self._connection: asyncpg.Connection | None = None
        self._held: Any = None
        """The transaction that holds the catalog."""
        self._is_closed = False
        try:
            self.cluster: Cluster = self._run(self._read_cluster)
        except BaseException:
            self.close()
            raise

    def _run(self, call: Callable[[], Awaitable[T]]) -> T:
        async def run() -> T:
            try:
                with translated():
                    return await call()
            except DatabaseUnavailableError as error:
                await self._drop()
                raise CatalogUnavailableError(str(error)) from error
            except BaseException:
                await self._drop()
                raise

        return self._runner.run(run())

    async def _drop(self) -> None:
        """A connection of which nobody knows what it is in the middle of."""
        connection, self._connection, self._held = self._connection, None, None
        if connection is not None:
            connection.terminate()

    async def _connected(self) -> asyncpg.Connection:
        if self._connection is None or self._connection.is_closed():
            self._connection = await self._access.connect()
        return self._connection

    async def _read_cluster(self) -> Cluster:
        connection = await self._connected()
        await check_known(connection)
        row = await connection.fetchrow("select id, shards from cluster")
        return Cluster(row[0], row[1])

    def read(self, after: int) -> News:
        async def read() -> News:
            connection = await self._connected()
            async with connection.transaction(isolation="repeatable_read"):
                return await _news(connection, after)

        return self._run(read)

    def begin(self, after: int) -> News:
        async def begin() -> News:
            connection = await self._connected()
            # Whatever the database's default is: in a snapshot of before it waits, it would miss the change before it.
            self._held = connection.transaction(isolation="read_committed")
            await self._held.start()
            await connection.fetch(_HOLD)
            return await _news(connection, after)

        return self._run(begin)

    def commit(self, records: Sequence[bytes]) -> int:
        row = change_of(records)

        async def commit() -> int:
            connection = self._holding()
            version = newest_of(await connection.fetchrow(LAST)) + 1
            await connection.execute("insert into change (version, records, crc) values ($1, $2, $3)", version, *row)
            held, self._held = self._held, None
            await held.commit()
            return version

        return self._run(commit)

    def _holding(self) -> asyncpg.Connection:
        if self._held is None or self._connection is None:
            raise CatalogUnavailableError("the catalog is not held any more")
        return self._connection

    def abandon(self, *, certain: bool = False) -> None:
        async def abandon() -> None:
            if certain:  # what is seen may be lacking at a synchronous standby: statements.CERTAIN_HEADS
                await self._holding().execute(_CHANGE_NOTHING)
            held, self._held = self._held, None
            if held is not None:
                await (held.commit() if certain else held.rollback())

        self._run(abandon)

    def keep(self, version: int, snapshot: bytes, behind: int = 0) -> None:
        async def keep() -> None:
            connection = await self._connected()
            async with connection.transaction(isolation="read_committed"):
                await connection.fetch(_HOLD)
                newest = await connection.fetchval("select coalesce(max(version), 0) from snapshot")
                if newest >= version:
                    return
                await connection.execute("delete from snapshot")
                row = version, snapshot, crc32c(snapshot)
                await connection.execute("insert into snapshot values ($1, $2, $3)", *row)
                await connection.execute("delete from change where version <= $1", version - behind)

        self._run(keep)

    def close(self) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        self._runner.run(self._drop())
        self._runner.close()


async def _news(connection: Any, after: int) -> News:
    """In a transaction that sees one moment, or holds the catalog."""
    kept = await connection.fetchrow(KEPT.format(after="$1"), after)
    rows = await connection.fetch(CHANGES.format(after="$1"), after)
    return news_of(after, kept, rows, await connection.fetchrow(LAST))
