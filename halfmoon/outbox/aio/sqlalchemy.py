"""`halfmoon.outbox.sqlalchemy` for AsyncEngine, async_sessionmaker, AsyncSession and AsyncConnection.

outbox = Outbox("shop", producer, engine)
async with outbox.transaction() as tx:
    tx.session.add(Order(...))
    tx.send("orders", b"order 7 was paid")
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy.exc import IntegrityError, SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, async_scoped_session, async_sessionmaker

from halfmoon.outbox.aio.channel import channel_of
from halfmoon.outbox.aio.outbox import AsyncBaseOutbox
from halfmoon.outbox.inbox import Identity, IdOf
from halfmoon.outbox.messages import Transaction
from halfmoon.outbox.outbox import COMMIT_WITHIN_S, TIMEOUT_S
from halfmoon.outbox.statements import InboxTable, OutboxTable
from halfmoon.outbox.table import INBOX, KEEP, OUTBOX, SLICE_ROWS, State, check_name, utc_now

__all__ = ["Inbox", "Outbox", "SqlTransaction"]


class SqlTransaction(Transaction):
    """`session`: where the block works; with a connection of Core, which has none, `connection`."""

    def __init__(self, transaction_id: str | None, handle: Any) -> None:
        super().__init__(transaction_id)
        self._handle = handle

    @property
    def session(self) -> AsyncSession:
        if not isinstance(self._handle, AsyncSession):
            raise AttributeError("this transaction was begun with a connection: it has no session")
        return self._handle

    @property
    def connection(self) -> Any:
        if isinstance(self._handle, AsyncSession):
            raise AttributeError("this transaction was begun with a session: await its connection()")
        return self._handle


class _Local:
    def __init__(self, table: OutboxTable, handle: Any) -> None:
        self._table = table
        self._handle = handle

    def transaction(self, transaction_id: str | None) -> SqlTransaction:
        return SqlTransaction(transaction_id, self._handle)

    async def insert(self, group: str, transaction_id: str, now: datetime, commit_within_s: float) -> None:
        connection = self._handle
        if isinstance(self._handle, AsyncSession):
            await self._handle.flush()  # what the database refuses is refused before anything is sent
            connection = await self._handle.connection()
        if connection.sync_connection.get_execution_options().get("isolation_level") == "AUTOCOMMIT":
            raise ValueError("the connection commits each statement (AUTOCOMMIT): there is no transaction")
        for statement in self._table.limits(connection.dialect.name, commit_within_s):
            await connection.execute(statement)
        await connection.execute(self._table.insert(group, transaction_id, State.COMMITTED, now))

    async def commit(self) -> None:
        await self._handle.commit()

    async def rollback(self) -> None:
        await self._handle.rollback()


class SqlDatabase:
    errors: tuple[type[Exception], ...] = (SQLAlchemyError,)

    def __init__(self, bind: Any, table: str) -> None:
        self._engine, self._sessions = engine_and_sessions(bind)
        self.table = OutboxTable(table)

    @asynccontextmanager
    async def local(self, using: Any) -> AsyncIterator[_Local]:
        if using is None:
            async with self._sessions() as session:
                yield _Local(self.table, session)
        else:
            yield _Local(self.table, using() if isinstance(using, async_scoped_session) else using)

    async def state_of(self, group: str, transaction_id: str) -> State | None:
        async with self._engine.connect() as connection:
            state = (await connection.execute(self.table.state_of(group, transaction_id))).scalar()
        return None if state is None else State(state)

    async def abandon(self, group: str, transaction_id: str, now: datetime) -> bool:
        try:
            async with self._engine.begin() as connection:
                for statement in self.table.brief_waits(connection.dialect.name):
                    await connection.execute(statement)
                await connection.execute(self.table.insert(group, transaction_id, State.ABANDONED, now))
        except IntegrityError:
            return False
        return True

    async def remove(self, group: str, before: datetime, most: int) -> int:
        async with self._engine.begin() as connection:
            old = (await connection.execute(self.table.older(group, before, most))).scalars().all()
            if old:
                await connection.execute(self.table.remove(group, old))
        return len(old)

    async def create_table(self) -> None:
        async with self._engine.begin() as connection:
            await connection.run_sync(lambda sync: self.table.table.create(sync, checkfirst=True))


class Outbox(AsyncBaseOutbox[SqlTransaction]):
    """As `halfmoon.outbox.sqlalchemy.Outbox`. `producer`: an aiokafka.AIOKafkaProducer, an OutboxProducer of
    `halfmoon.outbox.aio.rocketmq`, a confluent_kafka.Producer or a kafka.KafkaProducer. `bind`: an AsyncEngine, or an
    async_sessionmaker with one."""

    def __init__(
        self,
        group: str,
        producer: Any,
        bind: AsyncEngine | async_sessionmaker[Any],
        *,
        table: str = OUTBOX,
        timeout_s: float = TIMEOUT_S,
        commit_within_s: float = COMMIT_WITHIN_S,
        now: Callable[[], datetime] = utc_now,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        channel, database = channel_of(group, producer, timeout_s), SqlDatabase(bind, table)
        super().__init__(group, channel, database, commit_within_s=commit_within_s, now=now, clock=clock)


class Inbox:
    """As `halfmoon.outbox.sqlalchemy.Inbox`."""

    def __init__(
        self,
        group: str,
        bind: AsyncEngine | async_sessionmaker[Any],
        *,
        table: str = INBOX,
        id_of: IdOf | None = None,
        now: Callable[[], datetime] = utc_now,
    ) -> None:
        self.group = check_name("group", group)
        self._engine, self._sessions = engine_and_sessions(bind)
        self._table = InboxTable(table)
        self._identity = Identity(group, id_of)
        self._now = now

    async def once(self, using: Any, message: Any) -> bool:
        """True where this group has not handled the message: then handle it in the same transaction, that of an
        AsyncSession or AsyncConnection. Waits where another transaction is handling it at this moment."""
        session = using() if isinstance(using, async_scoped_session) else using
        connection = await session.connection() if isinstance(session, AsyncSession) else session
        found = self._identity(message)
        insert = self._table.insert_new(connection.dialect.name, self.group, found, self._now())
        if insert is not None:
            is_new = (await connection.execute(insert)).first() is not None
        else:
            is_new = await self._insert_in_savepoint(connection, found)
        if is_new or found.record_ms is None:
            return bool(is_new)
        return bool((await connection.execute(self._table.replace_other(self.group, found, self._now()))).rowcount)

    async def _insert_in_savepoint(self, connection: Any, found: Any) -> bool:
        try:
            async with connection.begin_nested():
                await connection.execute(self._table.insert(self.group, found, self._now()))
        except IntegrityError:
            return False
        return True

    def handler(self, handle: Callable[[AsyncSession, Any], Awaitable[object]]) -> Callable[[Any], Awaitable[None]]:
        """For a consumer's loop: awaits `handle(session, message)` in a transaction, once for each message, and commits
        it. What `handle` raises rolls it back, and is raised."""

        async def handle_once(message: Any) -> None:
            async with self._sessions() as session, session.begin():
                if await self.once(session, message):
                    await handle(session, message)

        return handle_once

    async def clean(self, older_than: timedelta = KEEP) -> int:
        """As `halfmoon.outbox.sqlalchemy.Inbox.clean`."""
        before, removed = self._now() - older_than, 0
        while True:
            async with self._engine.begin() as connection:
                old = (await connection.execute(self._table.older(self.group, before, SLICE_ROWS))).scalars().all()
                if old:
                    await connection.execute(self._table.remove(self.group, old))
            removed += len(old)
            if len(old) < SLICE_ROWS:
                return removed

    async def create_table(self) -> None:
        """Unless it is there. `halfmoon.outbox.inbox_sql()` has the statements."""
        async with self._engine.begin() as connection:
            await connection.run_sync(lambda sync: self._table.table.create(sync, checkfirst=True))


def engine_and_sessions(bind: Any) -> tuple[Any, Any]:
    """Raises TypeError."""
    if isinstance(bind, AsyncEngine):
        return bind, async_sessionmaker(bind)
    if isinstance(bind, async_sessionmaker) and isinstance(bind.kw.get("bind"), AsyncEngine):
        return bind.kw["bind"], bind
    raise TypeError(f"expected an AsyncEngine, or an async_sessionmaker with one, not {type(bind).__name__}")
