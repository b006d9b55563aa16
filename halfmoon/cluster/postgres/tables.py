"""All tables of a cluster in PostgreSQL, read as of one moment and filled at once: see cluster/backup/ports."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

from halfmoon.cluster.backup.ports import EPOCHS, FILLED_MEANWHILE, PINNED_S, Made, Moment
from halfmoon.cluster.backup.tables import COLUMNS, Row, Rows
from halfmoon.cluster.postgres import schema, statements
from halfmoon.cluster.postgres.connecting import CALL_S, Access, connected
from halfmoon.cluster.store import Cluster
from halfmoon.core.crc import crc32c
from halfmoon.errors import StartError

LONG_S: Final = 600.0
"""For a statement about whole tables, and for the commit of one."""
LIVING_S: Final = 5.0
LOOK_S: Final = 0.1
ROWS: Final = 1_000
SKIPPED: Final = 1_000_000
"""Incarnations, …"""
MOST_SKIPPED: Final = 1_000
"""… and up to so many times more in a database that begins with 1: one that was filled before may have had others."""
FRAME_ROWS: Final = 16
"""So many at once of the table that has frames: each may have some MiB."""
PART_BYTES: Final = 64 << 20
"""Rows are given out once they have so much together: a batch, and a change of the catalog, may be as large as a client
is allowed to make it."""

_NEEDED: Final = """
select key, size from object where exists (select from piece where piece.key = object.key)
or exists (select from file where file.key = object.key)"""
_PIN: Final = "insert into pin (until) values (clock_timestamp() + make_interval(secs => $1)) returning number"
_KEEP: Final = """
update pin set until = clock_timestamp() + make_interval(secs => $2) where number = $1 and until > clock_timestamp()
returning number"""
_UNPIN: Final = "delete from pin where number = $1 or until < clock_timestamp() - interval '1 d'"
_BRING_BACK: Final = """
update shard set epoch = epoch + $1, owner = null, wanted = null, restored = true"""
_DISOWN: Final = "update shard set owner = null"
_FORGET_NODES: Final = "delete from node"
_LOCK_CLUSTER: Final = "select from cluster for update"
_NEW_INCARNATIONS: Final = """
select setval(found.name, nextval(found.name) + $1)
from (select pg_get_serial_sequence('node', 'incarnation')::regclass as name) as found"""
"""Some may have been given out since, to processes that run still."""
_USED: Final = """
select exists (select from shard where epoch > 0 or end_position > 0) or exists (select from change)
or exists (select from snapshot)"""
_MADE: Final = """
select id, shards, (select count(*) from shard where durability = 'fast')::integer from cluster"""
_SET_SHARD: Final = "update shard set epoch = $2, end_position = $3 where shard = $1"
_LIVING: Final = f"select distinct number from node where {statements.ALIVE} order by number"


class PostgresTables:
    """See Source, Target and Unused."""

    def __init__(self, access: Access) -> None:
        self._access = access

    @asynccontextmanager
    async def _connected(self, *, long: bool = False) -> AsyncIterator[Any]:
        """`long`: statements, and the commit, take as long as whole tables do."""
        async with connected(self._access, LONG_S if long else CALL_S) as connection:
            if long:
                for setting in ("statement_timeout", "idle_in_transaction_session_timeout", "lock_timeout"):
                    await connection.execute(f"set {setting} = 0")
            yield connection

    # -- reading ---------------------------------------------------------------------------------------------------

    async def pin(self) -> int:
        async with self._connected() as connection:
            await _check_format(connection)
            return int(await connection.fetchval(_PIN, PINNED_S))

    async def keep_pinned(self, number: int) -> bool:
        async with self._connected() as connection:
            return await connection.fetchval(_KEEP, number, PINNED_S) is not None

    async def unpin(self, number: int) -> None:
        async with self._connected() as connection:
            await connection.execute(_UNPIN, number)

    async def read(self, told: list[Moment]) -> AsyncIterator[Rows]:
        async with (
            self._connected(long=True) as connection,
            connection.transaction(isolation="repeatable_read", readonly=True),
        ):
            found = await _check_format(connection)
            at = await connection.fetchval("select transaction_timestamp()")
            told.append(Moment(at.isoformat(timespec="milliseconds"), found))
            for table, columns in COLUMNS.items():
                at_once = FRAME_ROWS if table == "wal" else ROWS
                statement = _NEEDED if table == "object" else f"select {', '.join(columns)} from {table}"
                rows: list[Row] = []
                size = 0
                async for row in connection.cursor(statement, prefetch=at_once):
                    rows.append(tuple(row))
                    size += sum(len(value) for value in row if isinstance(value, bytes))
                    if len(rows) == at_once or size >= PART_BYTES:
                        yield Rows(table, rows)
                        rows, size = [], 0
                if rows:
                    yield Rows(table, rows)

    # -- filling ---------------------------------------------------------------------------------------------------

    async def check_empty(self) -> None:
        async with self._connected() as connection:
            await schema.check_none(connection)

    async def fill(self, rows: Iterator[Rows], columns: Mapping[str, Sequence[str]], told: list[str]) -> None:
        async with self._connected(long=True) as connection, connection.transaction():
            await schema.make_tables(connection)
            for found in rows:
                named = list(columns[found.table])
                await connection.copy_records_to_table(
                    found.table, records=[tuple(row) for row in found.rows], columns=named
                )
            await _begin_anew(connection, SKIPPED * (1 + secrets.randbelow(MOST_SKIPPED)))
            told.append(str(await connection.fetchval(statements.LINEAGE)))

    async def finish(self, cluster: Cluster, version: int, snapshot: bytes, lineage: str) -> None:
        async with self._connected(long=True) as connection, connection.transaction():
            await schema.lock(connection)
            await schema.check_none(connection)
            if str(await connection.fetchval(statements.LINEAGE)) != lineage:
                raise StartError(FILLED_MEANWHILE)
            await connection.execute(_DISOWN)
            await connection.execute(_FORGET_NODES)
            row = version, snapshot, crc32c(snapshot)
            await connection.execute("insert into snapshot values ($1, $2, $3)", *row)
            await connection.execute("insert into cluster (id, shards) values ($1, $2)", *cluster)

    async def lineage(self) -> str:
        async with self._connected() as connection, connection.transaction():
            await schema.lock(connection)
            await schema.found_format(connection)
            return str(await connection.fetchval(statements.LINEAGE))

    async def cluster_id(self) -> str:
        async with self._connected() as connection:
            await schema.found_format(connection)
            return str(await connection.fetchval("select id from cluster"))

    # -- filling what is there and unused --------------------------------------------------------------------------

    async def check_unused(self) -> Made:
        async with self._connected() as connection:
            await _check_format(connection)
            return await _check_unused(connection)

    async def fill_unused(self, rows: Iterator[Rows]) -> None:
        async with self._connected(long=True) as connection, connection.transaction():
            await connection.fetch(_LOCK_CLUSTER)
            await connection.fetch("select from shard order by shard for update")
            await _check_unused(connection)
            for found in rows:
                if found.table == "shard":
                    await connection.executemany(_SET_SHARD, found.rows)
                else:
                    await connection.copy_records_to_table(
                        found.table, records=found.rows, columns=COLUMNS[found.table]
                    )

    async def names_object(self, key: str) -> bool:
        async with self._connected() as connection, connection.transaction():
            await connection.fetch(_LOCK_CLUSTER)
            return bool(await connection.fetchval("select exists (select from object where key = $1)", key))

    # -- brought back ----------------------------------------------------------------------------------------------

    async def needed(self) -> Mapping[str, int]:
        async with self._connected(long=True) as connection:
            await _check_format(connection)
            rows = await connection.fetch(_NEEDED)
        return {row[0]: row[1] for row in rows}

    async def bring_back(self) -> int:
        async with self._connected(long=True) as connection, connection.transaction():
            await _wait_until_nobody_lives(connection)
            await connection.execute(_FORGET_NODES)
            await connection.execute("delete from pin")
            return await _begin_anew(connection, SKIPPED)


async def _begin_anew(connection: Any, skipped: int) -> int:
    """How many shards do."""
    await connection.fetch(_NEW_INCARNATIONS, skipped)
    await connection.execute(statements.NEW_LINEAGE)
    done = await connection.execute(_BRING_BACK, EPOCHS)
    return int(done.rpartition(" ")[2])


async def _check_unused(connection: Any) -> Made:
    """Raises StartError."""
    await _wait_until_nobody_lives(connection)
    if await connection.fetchval(_USED):
        raise StartError("the cluster is not empty: make a new one with `halfmoon cluster init`, in another database")
    row = await connection.fetchrow(_MADE)
    return Made(*row)


async def _wait_until_nobody_lives(connection: Any) -> None:
    """Raises StartError where a node goes on living: just after it has ended, or after the database has begun, it looks
    so for as long as a lease."""
    for _ in range(round(LIVING_S / LOOK_S)):
        if not await connection.fetch(_LIVING):
            return
        await asyncio.sleep(LOOK_S)
    alive = [str(row[0]) for row in await connection.fetch(_LIVING)]
    if alive:
        raise StartError(f"stop the nodes first: {', '.join(alive)}")


async def _check_format(connection: Any) -> int:
    """Raises StartError where the tables are not those that this program knows: some would be left out."""
    found = await schema.found_format(connection)
    if found != schema.NEWEST:
        raise StartError(
            f"the database has format {found}, and this program knows {schema.NEWEST}: "
            + ("run `halfmoon cluster upgrade`" if found < schema.NEWEST else "use the version that has upgraded it")
        )
    return found
