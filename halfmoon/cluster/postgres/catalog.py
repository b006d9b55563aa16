"""The catalog in PostgreSQL, as cluster/store.CatalogStore says it.

Whoever changes it holds the cluster's row meanwhile. Others hear of a change from the node that has made it, and by
asking.

A commit that waits for a synchronous standby, and whose client stops waiting, is ended by the server: all see it from
then on, and the standby may lack it. So news is told of once a commit that was begun after it was seen has succeeded at
the same server: PostgreSQL waits for the standby by the position in its log. A look that finds nothing new writes
nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, NamedTuple, TypeVar

import asyncpg

from halfmoon.cluster.catalog_rows import CHANGES, KEPT, LAST, Known, Last, Row, change_of, newest_of, news_of
from halfmoon.cluster.engine.database import DatabaseUnavailableError
from halfmoon.cluster.postgres.connecting import CALL_S, Access, translated
from halfmoon.cluster.postgres.schema import check_known
from halfmoon.cluster.store import CatalogUnavailableError, CatalogUncertainError, Cluster, News
from halfmoon.core.crc import crc32c
from halfmoon.errors import StartError

T = TypeVar("T")

_HOLD: Final = "select from cluster for update"
_BEGUN: Final = "select pg_postmaster_start_time()"
_CERTAIN: Final = """
select pg_logical_emit_message(true, 'halfmoon', '') from (select) as one where pg_postmaster_start_time() = $1"""
"""A commit that changes nothing, and waits for nobody who holds something. No row: it is another server than the one
that has begun at this time."""
CERTAIN_S: Final = 1.5
"""For that, while the catalog is held: the server ends a transaction that is idle for 2 s. Else it has CALL_S."""

END_S: Final = 1.0
"""For a server that waits to say so."""


async def read_cluster(access: Access) -> Cluster:
    """Raises DatabaseUnavailableError; StartError where there is no cluster that this program can do with, or where
    nobody can make sense of how it is to be reached."""
    try:
        connection = await access.connect()
    except (DatabaseUnavailableError, ValueError, OverflowError) as error:
        said = error.__cause__ if isinstance(error, DatabaseUnavailableError) else error
        # The driver's, of the words of an address. A certificate that does not verify is a ValueError and an OSError.
        if isinstance(said, (ValueError, OverflowError)) and not isinstance(said, OSError):
            raise StartError(f"$.cluster.database: {said}") from error
        raise
    try:
        with translated():
            await check_known(connection)
            row = await connection.fetchrow("select id, shards from cluster")
    except BaseException:
        connection.terminate()
        raise
    with contextlib.suppress(DatabaseUnavailableError), translated():
        await connection.close(timeout=END_S)
    return Cluster(row[0], row[1])


class PostgresStore:
    """One thread calls it; it has connections and an event loop of its own. It connects when it is used."""

    def __init__(self, access: Access, cluster: Cluster) -> None:
        """`cluster`: as of `read_cluster`."""
        self._access = access
        self.cluster = cluster
        self._runner = asyncio.Runner()
        self._connection: asyncpg.Connection | None = None
        self._second: asyncpg.Connection | None = None
        """For what is committed while the first one holds the catalog."""
        self._held: Any = None
        """The transaction that holds the catalog."""
        self._known = Known()
        self._is_closed = False

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
        connections, self._connection, self._second = (self._connection, self._second), None, None
        self._held = None
        for connection in connections:
            if connection is not None:
                connection.terminate()

    async def _connected(self) -> asyncpg.Connection:
        if self._connection is None or self._connection.is_closed():
            self._connection = await self._access.connect()
        return self._connection

    async def _connected_again(self) -> asyncpg.Connection:
        if self._second is not None:
            try:
                with translated():
                    await self._second.fetchval("select 1")
                return self._second
            except DatabaseUnavailableError:  # it is used seldom, and may have ended long ago
                self._second.terminate()
        self._second = await self._access.connect()
        return self._second

    def read(self, after: int) -> News:
        async def read() -> News:
            connection = await self._connected()
            async with connection.transaction(isolation="repeatable_read"):
                found = await _found(connection, after)
            return await self._told(found, connection, connection, CALL_S)

        return self._run(read)

    def begin(self, after: int) -> News:
        async def begin() -> News:
            connection = await self._connected()
            second = await self._connected_again()  # others wait as soon as it is held
            # Whatever the database's default is: in a snapshot of before it waits, it would miss the change before it.
            self._held = connection.transaction(isolation="read_committed")
            await self._held.start()
            await connection.fetch(_HOLD)
            return await self._told(await _found(connection, after), connection, second, CERTAIN_S)

        return self._run(begin)

    async def _told(self, found: _Found, seen: asyncpg.Connection, free: asyncpg.Connection, within_s: float) -> News:
        """`seen`: by which connection; `free`: by which it is to be made certain. Raises CatalogUnavailableError."""
        after, kept, rows, last = found
        self._known.check(after, last)
        news = news_of(after, kept, rows, last)
        if news.version is not None:
            try:
                with translated():
                    async with asyncio.timeout(within_s):
                        begun = await seen.fetchval(_BEGUN)
                        is_same = await free.fetchrow(_CERTAIN, begun) is not None
            except DatabaseUnavailableError as error:
                await _end(free)
                raise CatalogUncertainError(f"version {news.version} is not certain: {error}", news) from error
            if not is_same:
                raise CatalogUncertainError(f"version {news.version} is not certain: another server answers", news)
        self._known.told(after, rows, last)
        return news

    def commit(self, records: Sequence[bytes]) -> int:
        row = change_of(records)

        async def commit() -> int:
            connection = self._holding()
            version = newest_of(await connection.fetchrow(LAST.format(after="0"))) + 1
            await connection.execute("insert into change (version, records, crc) values ($1, $2, $3)", version, *row)
            held, self._held = self._held, None
            await held.commit()
            self._known.is_told(version, row[1])
            return version

        return self._run(commit)

    def _holding(self) -> asyncpg.Connection:
        if self._held is None or self._connection is None:
            raise CatalogUnavailableError("the catalog is not held any more")
        return self._connection

    def abandon(self) -> None:
        async def abandon() -> None:
            held, self._held = self._held, None
            if held is not None:
                await held.rollback()

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


async def _end(connection: asyncpg.Connection) -> None:
    """The server is told to stop: else it would wait for the standby in one more process with each look."""
    with contextlib.suppress(DatabaseUnavailableError), translated():
        await connection.close(timeout=END_S)


class _Found(NamedTuple):
    """Of the tables, at one moment."""

    after: int
    kept: Row | None
    rows: Sequence[Row]
    last: Last


async def _found(connection: Any, after: int) -> _Found:
    """In a transaction that sees one moment, or holds the catalog."""
    kept = await connection.fetchrow(KEPT.format(after="$1"), after)
    rows = await connection.fetch(CHANGES.format(after="$1"), after)
    last = await connection.fetchrow(LAST.format(after="$1"), after)
    return _Found(after, kept, rows, last)
