"""The tables of a cluster, made and brought up to date by numbered files of SQL.

`schema/0001.sql` makes them; each further file brings a database to the next format. A file only adds: nodes of the
version before go on with what they know, and may start anew, so that nodes can be replaced one after the other. A
format is the next one of what a program knows, or its own.
"""

from __future__ import annotations

import asyncio
from importlib.resources import files
from typing import Any, Final

import asyncpg

from halfmoon.cluster.engine.database import DatabaseUnavailableError
from halfmoon.cluster.engine.pieces import Durability
from halfmoon.cluster.placement import Layout
from halfmoon.cluster.postgres.connecting import Access, connected
from halfmoon.errors import StartError

_LOCK: Final = "select pg_advisory_xact_lock(77, 0)"
"""One who makes or changes tables at a time."""
_EMPTY: Final = "truncate cluster, node, shard, object, piece, wal, file, change, snapshot, pin restart identity"
_OLDER: Final = """
select distinct number from node where lease_until > clock_timestamp() and format < $1 order by number"""
TRIES: Final = 5
PAUSE_S: Final = 1.0
"""Between two tries to change tables."""
_FORMATS: Final = "create table if not exists format (number integer primary key, at timestamptz default now())"


def _scripts() -> list[tuple[int, str]]:
    folder = files("halfmoon.cluster.postgres") / "schema"
    return sorted((int(each.name[:4]), each.read_text()) for each in folder.iterdir() if each.name.endswith(".sql"))


NEWEST: Final = _scripts()[-1][0]
"""The format that this program writes."""


async def create(access: Access, cluster_id: str, fast: int, objects: int) -> None:
    """Make the tables of a new cluster, with so many shards of each durability: those of `fast` come first. Raises
    StartError where there is one already."""
    Layout.of_cluster(fast, objects)
    kinds = [Durability.FAST] * fast + [Durability.OBJECT] * objects
    async with connected(access) as connection, connection.transaction():
        await make_tables(connection)
        await connection.execute("insert into cluster values ($1, $2)", cluster_id, len(kinds))
        rows = [(number, str(kind)) for number, kind in enumerate(kinds)]
        await connection.executemany("insert into shard (shard, durability) values ($1, $2)", rows)


async def make_tables(connection: Any) -> None:
    """In a transaction, and empty: they may be there, of a cluster that was not finished. Raises StartError where there
    is a cluster."""
    await lock(connection)
    await check_none(connection)
    await _apply(connection)
    await connection.execute(_EMPTY)


async def lock(connection: Any) -> None:
    """Until the transaction ends nobody else makes or changes tables."""
    await connection.execute(_LOCK)


async def check_none(connection: Any) -> None:
    """Raises StartError where there is a cluster."""
    if await _has_row(connection, "cluster"):
        raise StartError("the database has a cluster already")


async def upgrade(access: Access) -> tuple[int, int]:
    """Bring the tables up to date; the format before, and now. Raises StartError."""
    for _ in range(TRIES - 1):
        try:
            return await _upgrade(access)
        except DatabaseUnavailableError:  # a table that nodes use all the time was not free for long
            await asyncio.sleep(PAUSE_S)
    return await _upgrade(access)


async def _upgrade(access: Access) -> tuple[int, int]:
    async with connected(access) as connection, connection.transaction():
        await lock(connection)
        before = await found_format(connection)
        if before < NEWEST:
            await _refuse_older_nodes(connection, before)
        await _apply(connection)
    return before, max(before, NEWEST)


async def check(access: Access) -> None:
    """Raises StartError where there is no cluster that this program can do with."""
    async with connected(access) as connection:
        await check_known(connection)


async def check_known(connection: Any) -> None:
    """Raises StartError where the tables are not those of this version or the next."""
    found = await found_format(connection)
    if found < NEWEST:
        raise StartError(f"the database has format {found}, and needs {NEWEST}: run `halfmoon cluster upgrade`")


async def found_format(connection: Any) -> int:
    """Of the tables. Raises StartError where there are none, or ones that a program is for which is newer than the next
    version of this one."""
    if not await _has_row(connection, "cluster"):
        if await _has_row(connection, "shard"):
            raise StartError("the database has a cluster that is not finished: give `halfmoon cluster rebuild` again")
        raise StartError("the database has no cluster: `halfmoon cluster init` makes one")
    found = int(await connection.fetchval("select max(number) from format"))
    if found > NEWEST + 1:
        raise StartError(
            f"the database has format {found}; this program knows {NEWEST}, and can do with {NEWEST + 1}: "
            "install the version of the other nodes"
        )
    return found


async def _refuse_older_nodes(connection: Any, before: int) -> None:
    """Raises StartError where a node would be left that knows neither the next format nor the one before it."""
    if before < 2:  # nodes did not say what they know
        return
    rows = await connection.fetch(_OLDER, NEWEST - 1)
    if rows:
        numbers = ", ".join(str(row[0]) for row in rows)
        raise StartError(f"replace these nodes first, by ones of format {before}: {numbers}")


async def _has_row(connection: Any, table: str) -> bool:
    try:
        async with connection.transaction():
            return bool(await connection.fetchval(f"select exists (select from {table})"))
    except asyncpg.UndefinedTableError:
        return False


async def _apply(connection: Any) -> None:
    await connection.execute(_FORMATS)
    done = {row[0] for row in await connection.fetch("select number from format")}
    for number, script in _scripts():
        if number not in done:
            await connection.execute(script)
            await connection.execute("insert into format (number) values ($1)", number)
