"""The tables of a cluster, made and brought up to date by numbered files of SQL.

`schema/0001.sql` makes them; each further file brings a database to the next format. A file only adds: nodes of the
version before go on with what they know, so that nodes can be replaced one after the other.
"""

from __future__ import annotations

from importlib.resources import files
from typing import Any, Final

import asyncpg

from halfmoon.cluster.engine.pieces import Durability
from halfmoon.cluster.placement import MOST_SHARDS
from halfmoon.cluster.postgres.connecting import Access, translated
from halfmoon.errors import StartError

_LOCK: Final = "select pg_advisory_xact_lock(77, 0)"
"""One who makes or changes tables at a time."""
_FORMATS: Final = "create table if not exists format (number integer primary key, at timestamptz default now())"


def _scripts() -> list[tuple[int, str]]:
    folder = files("halfmoon.cluster.postgres") / "schema"
    return sorted((int(each.name[:4]), each.read_text()) for each in folder.iterdir() if each.name.endswith(".sql"))


NEWEST: Final = _scripts()[-1][0]
"""The format that this program writes."""


async def create(access: Access, cluster_id: str, fast: int, objects: int) -> None:
    """Make the tables of a new cluster, with so many shards of each durability: those of `fast` come first. Raises
    StartError where there is one already."""
    if not 1 <= fast <= fast + objects <= MOST_SHARDS:
        raise StartError(
            f"{fast} fast shards and {objects} of objects; from 1 fast one to {MOST_SHARDS} together are possible"
        )
    kinds = [Durability.FAST] * fast + [Durability.OBJECT] * objects
    connection = await access.connect()
    try:
        with translated():
            async with connection.transaction():
                await connection.execute(_LOCK)
                if await _has_cluster(connection):
                    raise StartError("the database has a cluster already")
                await _apply(connection)
                await connection.execute("insert into cluster values ($1, $2)", cluster_id, len(kinds))
                rows = [(number, str(kind)) for number, kind in enumerate(kinds)]
                await connection.executemany("insert into shard (shard, durability) values ($1, $2)", rows)
    finally:
        await connection.close()


async def upgrade(access: Access) -> tuple[int, int]:
    """Bring the tables up to date; the format before, and now. Raises StartError."""
    connection = await access.connect()
    try:
        with translated():
            async with connection.transaction():
                await connection.execute(_LOCK)
                before = await found_format(connection)
                await _apply(connection)
                return before, NEWEST
    finally:
        await connection.close()


async def found_format(connection: Any) -> int:
    """Of the tables. Raises StartError where there are none, or newer ones than this program knows of."""
    if not await _has_cluster(connection):
        raise StartError("the database has no cluster: `halfmoon cluster init` makes one")
    found = int(await connection.fetchval("select max(number) from format"))
    if found > NEWEST:
        raise StartError(f"the database has format {found}; this program knows {NEWEST}")
    return found


async def _has_cluster(connection: Any) -> bool:
    try:
        async with connection.transaction():
            return bool(await connection.fetchval("select exists (select from cluster)"))
    except asyncpg.UndefinedTableError:
        return False


async def _apply(connection: Any) -> None:
    await connection.execute(_FORMATS)
    done = {row[0] for row in await connection.fetch("select number from format")}
    for number, script in _scripts():
        if number not in done:
            await connection.execute(script)
            await connection.execute("insert into format (number) values ($1)", number)
