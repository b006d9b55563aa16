"""What the database says of the cluster, asked past all proxies."""

from __future__ import annotations

import asyncio
from typing import Any

import asyncpg

ASKS_S = 20.0
_ALIVE = """lease_until > clock_timestamp() and exists (
    select from pg_locks where locktype = 'advisory' and classid = 77 and objid = node.incarnation::oid and granted
)"""
_OWNED = f"select bool_and(coalesce(owner in (select incarnation from node where {_ALIVE}), false)) from shard"


class Tables:
    def __init__(self, dsn: str) -> None:
        self._dsn = dsn

    def ask(self, statement: str, *arguments: object) -> list[Any]:
        """Raises OSError where the database cannot be asked."""
        return asyncio.run(self._ask(statement, arguments))

    async def _ask(self, statement: str, arguments: tuple[object, ...]) -> list[Any]:
        try:
            connection = await asyncpg.connect(self._dsn, timeout=ASKS_S, command_timeout=ASKS_S)
            try:
                return list(await connection.fetch(statement, *arguments))
            finally:
                await connection.close()
        except (asyncpg.PostgresError, asyncpg.InterfaceError, TimeoutError) as error:
            raise OSError(f"the database: {error!r}") from error

    def alive(self) -> set[int]:
        """Numbers of the nodes that are there."""
        return {row[0] for row in self.ask(f"select number from node where {_ALIVE}")}

    def all_owned(self) -> bool:
        return bool(self.ask(_OWNED)[0][0])

    def epochs_of(self, number: int) -> dict[int, int]:
        """Shard → its epoch, of those that a node has."""
        rows = self.ask(
            "select shard, epoch from shard where owner = (select max(incarnation) from node where number = $1)", number
        )
        return {row[0]: row[1] for row in rows}
