"""Outbox and inbox for psycopg 3 and PostgreSQL.

outbox = Outbox("shop", producer, "dbname=shop")
with outbox.transaction() as tx:
    tx.connection.execute("INSERT INTO orders VALUES (%s, %s)", (7, "tea"))
    tx.send("orders", b"order 7 was paid")

inbox = Inbox("billing", "dbname=bank")
with psycopg.connect("dbname=bank") as connection:
    if inbox.once(connection, message):
        connection.execute("INSERT INTO payments ...")
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import datetime, timedelta
from typing import Any

import psycopg
from psycopg.rows import tuple_row

from halfmoon.outbox.channel import Channel
from halfmoon.outbox.channels import channel_of
from halfmoon.outbox.inbox import Identity, IdOf
from halfmoon.outbox.messages import Transaction
from halfmoon.outbox.outbox import COMMIT_WITHIN_S, TIMEOUT_S, BaseOutbox
from halfmoon.outbox.psycopg_statements import InboxSql, OutboxSql, begins, cannot_commit
from halfmoon.outbox.table import INBOX, KEEP, OUTBOX, SLICE_ROWS, State, check_name, inbox_sql, outbox_sql, utc_now

__all__ = ["Inbox", "Outbox", "PsycopgTransaction"]

Connect = Callable[[], AbstractContextManager[Any]]


class PsycopgTransaction(Transaction):
    """`connection`: where the block works."""

    def __init__(self, transaction_id: str | None, connection: Any) -> None:
        super().__init__(transaction_id)
        self.connection = connection


class _Local:
    def __init__(self, sql: OutboxSql, connection: Any) -> None:
        self._sql = sql
        self._connection = connection

    def transaction(self, transaction_id: str | None) -> PsycopgTransaction:
        return PsycopgTransaction(transaction_id, self._connection)

    def insert(self, group: str, transaction_id: str, now: datetime, commit_within_s: float) -> None:
        self._connection.execute(*self._sql.limit(commit_within_s))
        self._connection.execute(*self._sql.insert(group, transaction_id, State.COMMITTED, now))

    def commit(self) -> None:
        self._connection.commit()

    def rollback(self) -> None:
        self._connection.rollback()


class PsycopgDatabase:
    errors: tuple[type[Exception], ...] = (psycopg.Error,)

    def __init__(self, connect: Any, table: str) -> None:
        self._connect = connecting(connect)
        self._sql = OutboxSql(table)
        self._table = table

    @contextmanager
    def local(self, using: Any) -> Iterator[_Local]:
        with self._connect() if using is None else nullcontext(using) as connection:
            reason = cannot_commit(connection)
            if reason is not None:
                raise ValueError(reason)
            if begins(connection):
                connection.execute("BEGIN")
            yield _Local(self._sql, connection)

    def state_of(self, group: str, transaction_id: str) -> State | None:
        with self._connect() as connection, connection.transaction():
            cursor = connection.cursor(row_factory=tuple_row)
            row = cursor.execute(*self._sql.state_of(group, transaction_id)).fetchone()
        return None if row is None else State(row[0])

    def abandon(self, group: str, transaction_id: str, now: datetime) -> bool:
        try:
            with self._connect() as connection, connection.transaction():
                connection.execute(*self._sql.brief_wait())
                connection.execute(*self._sql.insert(group, transaction_id, State.ABANDONED, now))
        except psycopg.errors.UniqueViolation:
            return False
        return True

    def remove(self, group: str, before: datetime, most: int) -> int:
        with self._connect() as connection, connection.transaction():
            return int(connection.execute(*self._sql.remove(group, before, most)).rowcount)

    def create_table(self) -> None:
        with self._connect() as connection, connection.transaction():
            connection.execute(outbox_sql(self._table))


class Outbox(BaseOutbox[PsycopgTransaction]):
    """Messages that are delivered if, and only if, a transaction of psycopg commits.

    `group`: of producers. `producer`: a confluent_kafka.Producer, kafka.KafkaProducer, or
    `halfmoon.outbox.rocketmq.OutboxProducer`. `connect`: a connection string, a psycopg_pool.ConnectionPool, or a
    function that opens a connection. `table`: its name, which may begin with a schema. `timeout_s`: how long the half
    messages of a transaction may take, and how long their ends. `commit_within_s`: how long half messages and commit
    may take together; then it is rolled back.

    `transaction(using=None, *, transaction_id=None)` gives a `PsycopgTransaction`: on `using`, a connection, which is
    committed at the end; or on a connection of its own.
    """

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
        channel: Channel = channel_of(group, producer, timeout_s)
        super().__init__(
            group, channel, PsycopgDatabase(connect, table), commit_within_s=commit_within_s, now=now, clock=clock
        )


class Inbox:
    """Handles each message once, in a transaction of psycopg. `group`: of consumers. `connect`: as of `Outbox`.
    `id_of`: what a message is known by, in place of where it was produced (`halfmoon.outbox.inbox`)."""

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

    def once(self, connection: Any, message: Any) -> bool:
        """True where this group has not handled the message: then handle it in the same transaction. False where it
        has. `connection`: one whose transaction you commit; with `autocommit`, in a block of
        `connection.transaction()`.

        Where another transaction is handling the message at this moment, this waits for its end. Raises ValueError
        outside of a transaction, and psycopg's errors.
        """
        if begins(connection):
            raise ValueError("the connection commits each statement: call this in a block of connection.transaction()")
        found = self._identity(message)
        if connection.execute(*self._sql.insert_new(self.group, found, self._now())).rowcount == 1:
            return True
        if found.record_ms is None:
            return False
        return bool(connection.execute(*self._sql.replace_other(self.group, found, self._now())).rowcount)

    def handler(self, handle: Callable[[Any, Any], object]) -> Callable[[Any], None]:
        """For a consumer's loop: calls `handle(connection, message)` in a transaction, once for each message, and
        commits it. What `handle` raises rolls it back, and is raised."""

        def handle_once(message: Any) -> None:
            with self._connect() as connection, connection.transaction():
                if self.once(connection, message):
                    handle(connection, message)

        return handle_once

    def clean(self, older_than: timedelta = KEEP) -> int:
        """Remove this group's rows that are older; how many. Keep them as long as a message can be redelivered: longer
        than its topic keeps it, and than its retries take."""
        before, removed = self._now() - older_than, 0
        while True:
            with self._connect() as connection, connection.transaction():
                count = connection.execute(*self._sql.remove(self.group, before, SLICE_ROWS)).rowcount
            removed += count
            if count < SLICE_ROWS:
                return removed

    def create_table(self) -> None:
        """Unless it is there. `halfmoon.outbox.inbox_sql()` has the statements."""
        with self._connect() as connection, connection.transaction():
            connection.execute(inbox_sql(self._table))


def connecting(connect: Any) -> Connect:
    """A function that gives a context manager of a connection, which it closes, or returns to its pool. Raises
    TypeError."""
    if isinstance(connect, str):
        return lambda: psycopg.connect(connect)
    if hasattr(connect, "connection"):
        return lambda: connect.connection()
    if callable(connect):
        return connect
    raise TypeError(f"expected a connection string, a pool or a function, not {type(connect).__name__}")
