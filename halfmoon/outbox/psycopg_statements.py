"""The tables' statements for psycopg, each with its arguments, and what a connection's state allows."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from psycopg import sql
from psycopg.pq import TransactionStatus

from halfmoon.outbox.inbox import MessageId
from halfmoon.outbox.table import BRIEF_WAIT_MS, State

Statement = tuple[Any, tuple[Any, ...]]


class OutboxSql:
    def __init__(self, table: str) -> None:
        name = _identifier(table)
        self._insert = sql.SQL(
            "INSERT INTO {} (producer_group, transaction_id, state, created_at) VALUES (%s, %s, %s, %s)"
        ).format(name)
        self._state = sql.SQL("SELECT state FROM {} WHERE producer_group = %s AND transaction_id = %s").format(name)
        self._remove = sql.SQL(
            "DELETE FROM {0} WHERE producer_group = %s AND transaction_id IN (SELECT transaction_id FROM {0} WHERE"
            " producer_group = %s AND created_at < %s ORDER BY created_at LIMIT %s)"
        ).format(name)

    def limit(self, commit_within_s: float) -> Statement:
        """Have the database end the transaction when it has been idle for so long."""
        return _set_local("idle_in_transaction_session_timeout", commit_within_s * 1_000)

    def brief_wait(self) -> Statement:
        return _set_local("lock_timeout", BRIEF_WAIT_MS)

    def insert(self, group: str, transaction_id: str, state: State, now: datetime) -> Statement:
        return self._insert, (group, transaction_id, state.value, now)

    def state_of(self, group: str, transaction_id: str) -> Statement:
        return self._state, (group, transaction_id)

    def remove(self, group: str, before: datetime, most: int) -> Statement:
        return self._remove, (group, group, before, most)


class InboxSql:
    def __init__(self, table: str) -> None:
        name = _identifier(table)
        self._insert = sql.SQL(
            "INSERT INTO {} (consumer_group, message_id, record_ms, handled_at) VALUES (%s, %s, %s, %s)"
            " ON CONFLICT DO NOTHING"
        ).format(name)
        self._replace = sql.SQL(
            "UPDATE {} SET record_ms = %s, handled_at = %s"
            " WHERE consumer_group = %s AND message_id = %s AND record_ms <> %s"
        ).format(name)
        self._remove = sql.SQL(
            "DELETE FROM {0} WHERE consumer_group = %s AND message_id IN (SELECT message_id FROM {0} WHERE"
            " consumer_group = %s AND handled_at < %s ORDER BY handled_at LIMIT %s)"
        ).format(name)

    def insert_new(self, group: str, found: MessageId, now: datetime) -> Statement:
        """Does nothing where the row is there."""
        return self._insert, (group, found.text, found.record_ms, now)

    def replace_other(self, group: str, found: MessageId, now: datetime) -> Statement:
        """Of a message that was at the same place in a topic of the same name."""
        return self._replace, (found.record_ms, now, group, found.text, found.record_ms)

    def remove(self, group: str, before: datetime, most: int) -> Statement:
        return self._remove, (group, group, before, most)


def begins(connection: Any) -> bool:
    """Whether no transaction is open, and none is opened by the next statement."""
    return bool(connection.autocommit) and connection.info.transaction_status == TransactionStatus.IDLE


def cannot_commit(connection: Any) -> str | None:
    """Why `commit()` would be refused or commit nothing, found out before anything is sent."""
    if getattr(connection, "_num_transactions", 0):
        return "the connection is in a block of connection.transaction(): begin the outbox's transaction outside of it"
    if connection.info.transaction_status == TransactionStatus.INERROR:
        return "the connection's transaction has failed: roll it back first"
    return None


def _identifier(table: str) -> sql.Identifier:
    return sql.Identifier(*table.split("."))


def _set_local(name: str, value_ms: float) -> Statement:
    return sql.SQL("SELECT set_config(%s, %s, true)"), (name, f"{int(value_ms)}ms")
