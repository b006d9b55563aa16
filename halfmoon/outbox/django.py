"""Outbox and inbox for Django: its own connections, transactions and commit hooks.

    outbox = Outbox("shop", producer)
    with outbox.transaction() as tx:
        order = Order.objects.create(...)
        tx.send("orders", order.to_json())

    inbox = Inbox("billing")
    with transaction.atomic():
        if inbox.once(message):
            Payment.objects.create(...)

The tables are made by a migration: `migrations.RunSQL(outbox_sql())`. Tested with PostgreSQL and SQLite.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any

from django.db import DEFAULT_DB_ALIAS, Error, IntegrityError, connections, transaction

from halfmoon.outbox.channels import channel_of
from halfmoon.outbox.inbox import Identity, IdOf, MessageId
from halfmoon.outbox.messages import Transaction
from halfmoon.outbox.outbox import COMMIT_WITHIN_S, TIMEOUT_S, BaseOutbox
from halfmoon.outbox.table import (
    BRIEF_WAIT_MS,
    INBOX,
    KEEP,
    OUTBOX,
    SLICE_ROWS,
    State,
    check_name,
    inbox_sql,
    outbox_sql,
    utc_now,
)

__all__ = ["Inbox", "Outbox"]

SKIPPING = {"postgresql", "sqlite"}
"""Databases that know ON CONFLICT DO NOTHING."""


class _RolledBackError(Exception):
    """What Django is told, to roll back."""


class _Local:
    def __init__(self, database: DjangoDatabase) -> None:
        self._database = database
        self._atomic = transaction.atomic(database.alias, durable=True)
        self._atomic.__enter__()
        self._is_open = True

    def transaction(self, transaction_id: str | None) -> Transaction:
        return Transaction(transaction_id)

    def insert(self, group: str, transaction_id: str, now: datetime, commit_within_s: float) -> None:
        self._database.set_local("idle_in_transaction_session_timeout", commit_within_s * 1_000)
        self._database.insert(group, transaction_id, State.COMMITTED, now)

    def commit(self) -> None:
        """With the hooks of transaction.on_commit. Where it is refused, Django rolls back."""
        self._is_open = False
        if transaction.get_rollback(self._database.alias):
            self._atomic.__exit__(_RolledBackError, _RolledBackError(), None)
            raise transaction.TransactionManagementError("the transaction is marked for rollback")
        self._atomic.__exit__(None, None, None)

    def rollback(self) -> None:
        if self._is_open:
            self._is_open = False
            self._atomic.__exit__(_RolledBackError, _RolledBackError(), None)


class DjangoDatabase:
    errors: tuple[type[Exception], ...] = (Error, transaction.TransactionManagementError)

    def __init__(self, alias: str, table: str) -> None:
        self.alias = alias
        self._table = table

    @contextmanager
    def local(self, using: Any) -> Iterator[_Local]:
        if using is not None:
            raise TypeError("Django has one connection in each thread: there is nothing to choose")
        yield _Local(self)

    def insert(self, group: str, transaction_id: str, state: State, now: datetime) -> None:
        self._execute(
            f"INSERT INTO {self._table} (producer_group, transaction_id, state, created_at) VALUES (%s, %s, %s, %s)",
            (group, transaction_id, state.value, _text(now)),
        )

    def set_local(self, name: str, value_ms: float) -> None:
        if connections[self.alias].vendor == "postgresql":
            self._execute("SELECT set_config(%s, %s, true)", (name, f"{int(value_ms)}ms"))

    def state_of(self, group: str, transaction_id: str) -> State | None:
        connections[self.alias].close_if_unusable_or_obsolete()  # as before a request
        with connections[self.alias].cursor() as cursor:
            cursor.execute(
                f"SELECT state FROM {self._table} WHERE producer_group = %s AND transaction_id = %s",
                (group, transaction_id),
            )
            row = cursor.fetchone()
        return None if row is None else State(row[0])

    def abandon(self, group: str, transaction_id: str, now: datetime) -> bool:
        try:
            with transaction.atomic(self.alias):
                self.set_local("lock_timeout", BRIEF_WAIT_MS)
                self.insert(group, transaction_id, State.ABANDONED, now)
        except IntegrityError:
            return False
        return True

    def remove(self, group: str, before: datetime, most: int) -> int:
        return self._execute(
            f"DELETE FROM {self._table} WHERE producer_group = %s AND transaction_id IN (SELECT transaction_id FROM"
            f" {self._table} WHERE producer_group = %s AND created_at < %s ORDER BY created_at LIMIT {most})",
            (group, group, _text(before)),
        )

    def create_table(self) -> None:
        _run(self.alias, outbox_sql(self._table))

    def _execute(self, statement: str, arguments: tuple[Any, ...]) -> int:
        """How many rows it changed."""
        with connections[self.alias].cursor() as cursor:
            cursor.execute(statement, arguments)
            return int(cursor.rowcount)


class Outbox(BaseOutbox[Transaction]):
    """Messages that are delivered if, and only if, a transaction of Django commits.

    `group`: of producers. `producer`: a confluent_kafka.Producer, kafka.KafkaProducer, or
    `halfmoon.outbox.rocketmq.OutboxProducer`. `using`: the database's alias. `table`: its name. `timeout_s` and
    `commit_within_s`: as of `halfmoon.outbox.sqlalchemy.Outbox`.

    `transaction()` is a block of `transaction.atomic(durable=True)`, so it raises RuntimeError inside of another one:
    ATOMIC_REQUESTS is off for views that use it (`transaction.non_atomic_requests`).
    """

    def __init__(
        self,
        group: str,
        producer: Any,
        *,
        using: str = DEFAULT_DB_ALIAS,
        table: str = OUTBOX,
        timeout_s: float = TIMEOUT_S,
        commit_within_s: float = COMMIT_WITHIN_S,
        now: Callable[[], datetime] = utc_now,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        channel, database = channel_of(group, producer, timeout_s), DjangoDatabase(using, table)
        super().__init__(group, channel, database, commit_within_s=commit_within_s, now=now, clock=clock)


class Inbox:
    """Handles each message once, in a transaction of Django. `group`: of consumers. `using`: the database's alias.
    `id_of`: what a message is known by, in place of where it was produced (`halfmoon.outbox.inbox`)."""

    def __init__(
        self,
        group: str,
        *,
        using: str = DEFAULT_DB_ALIAS,
        table: str = INBOX,
        id_of: IdOf | None = None,
        now: Callable[[], datetime] = utc_now,
    ) -> None:
        self.group = check_name("group", group)
        self._alias = using
        self._table = table
        self._identity = Identity(group, id_of)
        self._now = now

    def once(self, message: Any) -> bool:
        """True where this group has not handled the message: then handle it in the same block of `atomic`. False where
        it has.

        Where another transaction is handling the message at this moment, this waits for its end. Raises ValueError
        outside of `atomic`, and Django's errors.
        """
        if not connections[self._alias].in_atomic_block:
            raise ValueError("call this in a block of transaction.atomic()")
        found = self._identity(message)
        if self._insert(found):
            return True
        if found.record_ms is None:
            return False
        return bool(
            self._execute(
                f"UPDATE {self._table} SET record_ms = %s, handled_at = %s"
                " WHERE consumer_group = %s AND message_id = %s AND record_ms <> %s",
                (found.record_ms, _text(self._now()), self.group, found.text, found.record_ms),
            )
        )

    def handler(self, handle: Callable[[Any], object]) -> Callable[[Any], None]:
        """For a consumer's loop: calls `handle(message)` in a transaction, once for each message, and commits it. What
        `handle` raises rolls it back, and is raised."""

        def handle_once(message: Any) -> None:
            connections[self._alias].close_if_unusable_or_obsolete()  # as before a request
            with transaction.atomic(self._alias, durable=True):
                if self.once(message):
                    handle(message)

        return handle_once

    def clean(self, older_than: timedelta = KEEP) -> int:
        """Remove this group's rows that are older; how many. Keep them as long as a message can be redelivered: longer
        than its topic keeps it, and than its retries take."""
        before, removed = _text(self._now() - older_than), 0
        while True:
            count = self._execute(
                f"DELETE FROM {self._table} WHERE consumer_group = %s AND message_id IN (SELECT message_id FROM"
                f" {self._table} WHERE consumer_group = %s AND handled_at < %s ORDER BY handled_at LIMIT {SLICE_ROWS})",
                (self.group, self.group, before),
            )
            removed += count
            if count < SLICE_ROWS:
                return removed

    def create_table(self) -> None:
        """Unless it is there, where a migration with `halfmoon.outbox.inbox_sql()` does not."""
        _run(self._alias, inbox_sql(self._table))

    def _insert(self, found: MessageId) -> bool:
        statement = (
            f"INSERT INTO {self._table} (consumer_group, message_id, record_ms, handled_at) VALUES (%s, %s, %s, %s)"
        )
        row = self.group, found.text, found.record_ms, _text(self._now())
        if connections[self._alias].vendor in SKIPPING:
            return self._execute(f"{statement} ON CONFLICT DO NOTHING", row) == 1
        try:
            with transaction.atomic(self._alias):
                self._execute(statement, row)
        except IntegrityError:
            return False
        return True

    def _execute(self, statement: str, arguments: tuple[Any, ...]) -> int:
        with connections[self._alias].cursor() as cursor:
            cursor.execute(statement, arguments)
            return int(cursor.rowcount)


def _run(alias: str, statements: str) -> None:
    with transaction.atomic(alias), connections[alias].cursor() as cursor:
        for statement in statements.split(";"):
            if statement.strip():
                cursor.execute(statement)


def _text(moment: datetime) -> str:
    """As every database reads it, and SQLite, which knows no times, sorts it."""
    return moment.isoformat(" ", "microseconds")
