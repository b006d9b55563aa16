"""The catalog in PostgreSQL, as cluster/store.CatalogStore says it.

Whoever changes it holds the cluster's row meanwhile. Others hear of a change by NOTIFY, and by asking: a notification
may get lost with its connection.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, TypeVar

import asyncpg
import msgspec

from halfmoon.cluster.engine.database import DatabaseUnavailableError
from halfmoon.cluster.postgres.connecting import Access, translated
from halfmoon.cluster.postgres.schema import NEWEST, found_format
from halfmoon.cluster.store import CatalogUnavailableError, Change, Cluster, News
from halfmoon.core.crc import crc32c
from halfmoon.errors import StartError

T = TypeVar("T")

CHANNEL: Final = "halfmoon_catalog"
_HOLD: Final = "select from cluster for update"
_LAST: Final = """
select greatest(coalesce((select max(version) from change), 0), coalesce((select max(version) from snapshot), 0))"""
_SNAPSHOT: Final = "select version, data, crc from snapshot where version > $1"
_CHANGES: Final = "select version, records, crc from change where version > $1 order by version"
_records = msgspec.msgpack.Decoder(tuple[bytes, ...])


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
        found = await found_format(connection)
        if found < NEWEST:
            raise StartError(f"the database has format {found}, and needs {NEWEST}: run `halfmoon cluster upgrade`")
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
            self._held = connection.transaction()
            await self._held.start()
            await connection.fetch(_HOLD)
            return await _news(connection, after)

        return self._run(begin)

    def commit(self, records: Sequence[bytes]) -> int:
        encoded = msgspec.msgpack.encode(tuple(records))

        async def commit() -> int:
            connection = self._holding()
            version = int(await connection.fetchval(_LAST)) + 1
            await connection.execute(
                "insert into change (version, records, crc) values ($1, $2, $3)", version, encoded, crc32c(encoded)
            )
            await connection.execute(f"notify {CHANNEL}, '{version}'")
            held, self._held = self._held, None
            await held.commit()
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
            async with connection.transaction():
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
    snapshot = None
    kept = await connection.fetchrow(_SNAPSHOT, after)
    first = await connection.fetchval("select min(version) from change")
    if kept is not None and not (
        first is not None and first <= after + 1
    ):  # else all that is lacking is there one by one
        snapshot = int(kept[0]), _checked(*kept)
    since = after if snapshot is None else snapshot[0]
    rows = [(row[0], _checked(*row)) for row in await connection.fetch(_CHANGES, since)]
    if [version for version, _ in rows] != list(range(since + 1, since + 1 + len(rows))):
        raise CatalogUnavailableError(f"changes of the catalog are missing behind version {since}")
    return News(snapshot, [Change(version, _records.decode(records)) for version, records in rows])


def _checked(version: int, data: bytes, crc: int) -> bytes:
    if crc32c(data) != crc:
        raise CatalogUnavailableError(f"version {version} of the catalog is damaged")
    return bytes(data)
