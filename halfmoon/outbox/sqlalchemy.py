"""Outbox and inbox for SQLAlchemy 2.

    outbox = Outbox("shop", producer, engine)
    with outbox.transaction() as tx:
        tx.session.add(Order(...))
        tx.send("orders", b"order 7 was paid")

    inbox = Inbox("billing", engine)
    with Session(engine) as session, session.begin():
        if inbox.once(session, message):
            session.add(Payment(...))

Tested with PostgreSQL and SQLite. All statements are SQLAlchemy's own expressions, so that others should do; where the
database is not PostgreSQL, its own time-outs decide how long an insert waits for another transaction.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Engine
from sqlalchemy.exc import IntegrityError, SQLAlchemyError
from sqlalchemy.orm import Session, scoped_session, sessionmaker

from halfmoon.outbox.channel import Channel
from halfmoon.outbox.channels import channel_of
from halfmoon.outbox.inbox import Identity, IdOf
from halfmoon.outbox.messages import Transaction
from halfmoon.outbox.outbox import COMMIT_WITHIN_S, TIMEOUT_S, BaseOutbox
from halfmoon.outbox.statements import InboxTable, OutboxTable
from halfmoon.outbox.table import INBOX, KEEP, OUTBOX, SLICE_ROWS, State, check_name, utc_now

__all__ = ["Inbox", "Outbox", "SqlTransaction"]


class SqlTransaction(Transaction):
    """`session`: where the block works; with a connection of Core, which has none, `connection`."""

    def __init__(self, transaction_id: str | None, handle: Any) -> None:
        super().__init__(transaction_id)
        self._handle = handle

    @property
    def session(self) -> Session:
        if not isinstance(self._handle, Session):
            raise AttributeError("this transaction was begun with a connection: it has no session")
        return self._handle

    @property
    def connection(self) -> Any:
        return self._handle.connection() if isinstance(self._handle, Session) else self._handle


class _Local:
    def __init__(self, table: OutboxTable, handle: Any) -> None:
        self._table = table
        self._handle = handle

    def transaction(self, transaction_id: str | None) -> SqlTransaction:
        return SqlTransaction(transaction_id, self._handle)

    def insert(self, group: str, transaction_id: str, now: datetime, commit_within_s: float) -> None:
        connection = self._handle
        if isinstance(self._handle, Session):
            self._handle.flush()  # what the database refuses is refused before anything is sent
            connection = self._handle.connection()
        if connection.get_execution_options().get("isolation_level") == "AUTOCOMMIT":
            raise ValueError("the connection commits each statement (AUTOCOMMIT): there is no transaction")
        for statement in self._table.limits(connection.dialect.name, commit_within_s):
            connection.execute(statement)
        connection.execute(self._table.insert(group, transaction_id, State.COMMITTED, now))

    def commit(self) -> None:
        self._handle.commit()

    def rollback(self) -> None:
        self._handle.rollback()


class SqlDatabase:
    errors: tuple[type[Exception], ...] = (SQLAlchemyError,)

    def __init__(self, bind: Any, table: str) -> None:
        self._engine, self._sessions = engine_and_sessions(bind)
        self.table = OutboxTable(table)

    @contextmanager
    def local(self, using: Any) -> Iterator[_Local]:
        if using is None:
            with self._sessions() as session:
                yield _Local(self.table, session)
        else:
            yield _Local(self.table, using() if isinstance(using, scoped_session) else using)

    def state_of(self, group: str, transaction_id: str) -> State | None:
        with self._engine.connect() as connection:
            state = connection.execute(self.table.state_of(group, transaction_id)).scalar()
        return None if state is None else State(state)

    def abandon(self, group: str, transaction_id: str, now: datetime) -> bool:
        try:
            with self._engine.begin() as connection:
                for statement in self.table.brief_waits(connection.dialect.name):
                    connection.execute(statement)
                connection.execute(self.table.insert(group, transaction_id, State.ABANDONED, now))
        except IntegrityError:
            return False
        return True

    def remove(self, group: str, before: datetime, most: int) -> int:
        with self._engine.begin() as connection:
            old = connection.execute(self.table.older(group, before, most)).scalars().all()
            if old:
                connection.execute(self.table.remove(group, old))
        return len(old)

    def create_table(self) -> None:
        self.table.table.create(self._engine, checkfirst=True)


class Outbox(BaseOutbox[SqlTransaction]):
    """Messages that are delivered if, and only if, a transaction of SQLAlchemy commits.

    `group`: of producers. `producer`: a confluent_kafka.Producer, kafka.KafkaProducer, or
    `halfmoon.outbox.rocketmq.OutboxProducer`. `bind`: an Engine, or a sessionmaker with one. `table`: its name, which
    may begin with a schema. `timeout_s`: how long the half messages of a transaction may take, and how long their ends.
    `commit_within_s`: how long half messages and commit may take together; then it is rolled back.

    `transaction(using=None, *, transaction_id=None)` gives a `SqlTransaction`: on `using`, a Session, scoped_session or
    Connection, which is committed at the end; or with a Session of its own.
    """

    def __init__(
        self,
        group: str,
        producer: Any,
        bind: Engine | sessionmaker[Any],
        *,
        table: str = OUTBOX,
        timeout_s: float = TIMEOUT_S,
        commit_within_s: float = COMMIT_WITHIN_S,
        now: Callable[[], datetime] = utc_now,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        channel: Channel = channel_of(group, producer, timeout_s)
        super().__init__(
            group, channel, SqlDatabase(bind, table), commit_within_s=commit_within_s, now=now, clock=clock
        )


class Inbox:
    """Handles each message once, in a transaction of SQLAlchemy. `group`: of consumers. `id_of`: what a message is
    known by, in place of where it was produced (`halfmoon.outbox.inbox`)."""

    def __init__(
        self,
        group: str,
        bind: Engine | sessionmaker[Any],
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

    def once(self, using: Any, message: Any) -> bool:
        """True where this group has not handled the message: then handle it in the same transaction. False where it
        has. `using`: a Session, scoped_session or Connection, whose transaction you commit.

        Where another transaction is handling the message at this moment, this waits for its end. Raises SQLAlchemy's
        errors.
        """
        session = using() if isinstance(using, scoped_session) else using
        connection = session.connection() if isinstance(session, Session) else session
        found = self._identity(message)
        insert = self._table.insert_new(connection.dialect.name, self.group, found, self._now())
        if insert is not None:
            is_new = connection.execute(insert).first() is not None
        else:
            is_new = self._insert_in_savepoint(connection, found)
        if is_new or found.record_ms is None:
            return is_new
        return bool(connection.execute(self._table.replace_other(self.group, found, self._now())).rowcount)

    def _insert_in_savepoint(self, connection: Any, found: Any) -> bool:
        try:
            with connection.begin_nested():
                connection.execute(self._table.insert(self.group, found, self._now()))
        except IntegrityError:
            return False
        return True

    def handler(self, handle: Callable[[Session, Any], object]) -> Callable[[Any], None]:
        """For a consumer's loop: calls `handle(session, message)` in a transaction, once for each message, and commits
        it. What `handle` raises rolls it back, and is raised."""

        def handle_once(message: Any) -> None:
            with self._sessions() as session, session.begin():
                if self.once(session, message):
                    handle(session, message)

        return handle_once

    def clean(self, older_than: timedelta = KEEP) -> int:
        """Remove this group's rows that are older; how many. Keep them as long as a message can be redelivered: longer
        than its topic keeps it, and than its retries take."""
        before, removed = self._now() - older_than, 0
        while True:
            with self._engine.begin() as connection:
                old = connection.execute(self._table.older(self.group, before, SLICE_ROWS)).scalars().all()
                if old:
                    connection.execute(self._table.remove(self.group, old))
            removed += len(old)
            if len(old) < SLICE_ROWS:
                return removed

    def create_table(self) -> None:
        """Unless it is there. `halfmoon.outbox.inbox_sql()` has the statements."""
        self._table.table.create(self._engine, checkfirst=True)


def engine_and_sessions(bind: Any) -> tuple[Any, Any]:
    """Raises TypeError."""
    if isinstance(bind, Engine):
        return bind, sessionmaker(bind)
    if isinstance(bind, sessionmaker) and isinstance(bind.kw.get("bind"), Engine):
        return bind.kw["bind"], bind
    raise TypeError(f"expected an Engine, or a sessionmaker with one, not {type(bind).__name__}")
