"""`halfmoon.outbox.psycopg` for psycopg's AsyncConnection.

outbox = Outbox("shop", producer, "dbname=shop")
async with outbox.transaction() as tx:
    await tx.connection.execute("INSERT INTO orders VALUES (%s, %s)", (7, "tea"))
    tx.send("orders", b"order 7 was paid")
"""

from __future__ import annotations

import inspect
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from datetime import datetime, timedelta
from typing import Any

import psycopg
from psycopg.rows import tuple_row

from halfmoon.outbox.aio.channel import channel_of
from halfmoon.outbox.aio.outbox import AsyncBaseOutbox
from halfmoon.outbox.inbox import Identity, IdOf
from halfmoon.outbox.outbox import COMMIT_WITHIN_S, TIMEOUT_S
from halfmoon.outbox.psycopg import PsycopgTransaction
from halfmoon.outbox.psycopg_statements import InboxSql, OutboxSql, begins, cannot_commit
from halfmoon.outbox.table import INBOX, KEEP, OUTBOX, SLICE_ROWS, State, check_name, inbox_sql, outbox_sql, utc_now

__all__ = ["Inbox", "Outbox", "PsycopgTransaction"]

Connect = Callable[[], AbstractAsyncContextManager[Any]]


class _Local:
    def __init__(self, sql: OutboxSql, connection: Any) -> None:
        self._sql = sql
        self._connection = connection

    def transaction(self, transaction_id: str | None) -> PsycopgTransaction:
        return PsycopgTransaction(transaction_id, self._connection)

    async def insert(self, group: str, transaction_id: str, now: datetime, commit_within_s: float) -> None:
        await self._connection.execute(*self._sql.limit(commit_within_s))
        await self._connection.execute(*self._sql.insert(group, transaction_id, State.COMMITTED, now))

    async def commit(self) -> None:
        await self._connection.commit()

    async def rollback(self) -> None:
        await self._connection.rollback()


class PsycopgDatabase:
    errors: tuple[type[Exception], ...] = (psycopg.Error,)

    def __init__(self, connect: Any, table: str) -> None:
        self._connect = connecting(connect)
        self._sql = OutboxSql(table)
        self._table = table

    @asynccontextmanager
    async def local(self, using: Any) -> AsyncIterator[_Local]:
        async with self._connect() if using is None else nullcontext(using) as connection:
            reason = cannot_commit(connection)
            if reason is not None:
                raise ValueError(reason)
            if begins(connection):
                await connection.execute("BEGIN")
            yield _Local(self._sql, connection)

    async def state_of(self, group: str, transaction_id: str) -> State | None:
        async with self._connect() as connection, connection.transaction():
            cursor = connection.cursor(row_factory=tuple_row)
            await cursor.execute(*self._sql.state_of(group, transaction_id))
            row = await cursor.fetchone()
        return None if row is None else State(row[0])

    async def abandon(self, group: str, transaction_id: str, now: datetime) -> bool:
        try:
            async with self._connect() as connection, connection.transaction():
                await connection.execute(*self._sql.brief_wait())
                await connection.execute(*self._sql.insert(group, transaction_id, State.ABANDONED, now))
        except psycopg.errors.UniqueViolation:
            return False
        return True

    async def remove(self, group: str, before: datetime, most: int) -> int:
        async with self._connect() as connection, connection.transaction():
            return int((await connection.execute(*self._sql.remove(group, before, most))).rowcount)

    async def create_table(self) -> None:
        async with self._connect() as connection, connection.transaction():
            await connection.execute(outbox_sql(self._table))


class Outbox(AsyncBaseOutbox[PsycopgTransaction]):
    """As `halfmoon.outbox.psycopg.Outbox`. `producer`: an aiokafka.AIOKafkaProducer, an OutboxProducer of
    `halfmoon.outbox.aio.rocketmq`, a confluent_kafka.Producer or a kafka.KafkaProducer. `connect`: a connection string,
    a psycopg_pool.AsyncConnectionPool, or a function that opens an AsyncConnection."""

    def __init__(
        self,
        group: str,
        producer: Any,
        connect: Any,
        *,
        table: str = OUTBOX,
        timeout_s: float = TIMEOUT_S,
        commit_within_s: float = COMMIT_WITHIN_S,
        now: Callable[[], datetime] = utc_now,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        channel, database = channel_of(group, producer, timeout_s), PsycopgDatabase(connect, table)
        super().__init__(group, channel, database, commit_within_s=commit_within_s, now=now, clock=clock)


class Inbox:
    """As `halfmoon.outbox.psycopg.Inbox`."""

    def __init__(
        self,
        group: str,
        connect: Any,
        *,
        table: str = INBOX,
        id_of: IdOf | None = None,
        now: Callable[[], datetime] = utc_now,
    ) -> None:
        self.group = check_name("group", group)
        self._connect = connecting(connect)
        self._sql = InboxSql(table)
        self._table = table
        self._identity = Identity(group, id_of)
        self._now = now

    async def once(self, connection: Any, message: Any) -> bool:
        """True where this group has not handled the message: then handle it in the same transaction. Waits where
        another transaction is handling it at this moment. Raises ValueError outside of a transaction."""
        if begins(connection):
            raise ValueError("the connection commits each statement: call this in a block of connection.transaction()")
        found = self._identity(message)
        inserted = await connection.execute(*self._sql.insert_new(self.group, found, self._now()))
        if inserted.rowcount == 1:
            return True
        if found.record_ms is None:
            return False
        return bool((await connection.execute(*self._sql.replace_other(self.group, found, self._now()))).rowcount)

    def handler(self, handle: Callable[[Any, Any], Awaitable[object]]) -> Callable[[Any], Awaitable[None]]:
        """For a consumer's loop: awaits `handle(connection, message)` in a transaction, once for each message, and
        commits it. What `handle` raises rolls it back, and is raised."""

        async def handle_once(message: Any) -> None:
            async with self._connect() as connection, connection.transaction():
                if await self.once(connection, message):
                    await handle(connection, message)

        return handle_once

    async def clean(self, older_than: timedelta = KEEP) -> int:
        """As `halfmoon.outbox.psycopg.Inbox.clean`."""
        before, removed = self._now() - older_than, 0
        while True:
            async with self._connect() as connection, connection.transaction():
                count = (await connection.execute(*self._sql.remove(self.group, before, SLICE_ROWS))).rowcount
            removed += count
            if count < SLICE_ROWS:
                return removed

    async def create_table(self) -> None:
        """Unless it is there. `halfmoon.outbox.inbox_sql()` has the statements."""
        async with self._connect() as connection, connection.transaction():
            await connection.execute(inbox_sql(self._table))


def connecting(connect: Any) -> Connect:
    """A function that gives a context manager of a connection, which it closes, or returns to its pool. Raises
    TypeError."""
    if hasattr(connect, "connection"):
        return lambda: connect.connection()
    if isinstance(connect, str):
        return lambda: _opened(psycopg.AsyncConnection.connect(connect))
    if callable(connect):
        return lambda: _opened(connect())
    raise TypeError(f"expected a connection string, a pool or a function, not {type(connect).__name__}")


@asynccontextmanager
async def _opened(opening: Any) -> AsyncIterator[Any]:
    async with await opening if inspect.isawaitable(opening) else opening as connection:
        yield connection
