"""The tables and their statements, as SQLAlchemy's expressions."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import (
    BigInteger,
    Column,
    DateTime,
    Index,
    MetaData,
    String,
    Table,
    delete,
    insert,
    select,
    text,
    update,
)
from sqlalchemy.dialects import postgresql, sqlite

from halfmoon.outbox.inbox import MessageId
from halfmoon.outbox.table import (
    BRIEF_WAIT_MS,
    MAX_MESSAGE_CHARACTERS,
    MAX_NAME_CHARACTERS,
    State,
    index_name,
    schema_and_name,
)

POSTGRESQL = "postgresql"


def outbox_table(metadata: MetaData, name: str) -> Table:
    """The outbox's table in metadata of your own, for Alembic."""
    schema, bare = schema_and_name(name)
    return Table(
        bare,
        metadata,
        Column("producer_group", String(MAX_NAME_CHARACTERS), primary_key=True),
        Column("transaction_id", String(MAX_NAME_CHARACTERS), primary_key=True),
        Column("state", String(9), nullable=False),
        Column("created_at", DateTime(timezone=True), nullable=False),
        Index(index_name(name, "created"), "producer_group", "created_at"),
        schema=schema,
    )


def inbox_table(metadata: MetaData, name: str) -> Table:
    """The inbox's table in metadata of your own, for Alembic."""
    schema, bare = schema_and_name(name)
    return Table(
        bare,
        metadata,
        Column("consumer_group", String(MAX_NAME_CHARACTERS), primary_key=True),
        Column("message_id", String(MAX_MESSAGE_CHARACTERS), primary_key=True),
        Column("record_ms", BigInteger),
        Column("handled_at", DateTime(timezone=True), nullable=False),
        Index(index_name(name, "handled"), "consumer_group", "handled_at"),
        schema=schema,
    )


class OutboxTable:
    def __init__(self, name: str) -> None:
        self.table = outbox_table(MetaData(), name)

    def insert(self, group: str, transaction_id: str, state: State, now: datetime) -> Any:
        return insert(self.table).values(
            producer_group=group, transaction_id=transaction_id, state=state.value, created_at=now
        )

    def state_of(self, group: str, transaction_id: str) -> Any:
        columns = self.table.c
        return select(columns.state).where(columns.producer_group == group, columns.transaction_id == transaction_id)

    def older(self, group: str, before: datetime, most: int) -> Any:
        columns = self.table.c
        return (
            select(columns.transaction_id)
            .where(columns.producer_group == group, columns.created_at < before)
            .order_by(columns.created_at)
            .limit(most)
        )

    def remove(self, group: str, ids: Sequence[str]) -> Any:
        columns = self.table.c
        return delete(self.table).where(columns.producer_group == group, columns.transaction_id.in_(ids))

    def limits(self, dialect: str, commit_within_s: float) -> list[Any]:
        """Have the database end the transaction when it has been idle for so long."""
        if dialect != POSTGRESQL:
            return []
        return [_set_local("idle_in_transaction_session_timeout", commit_within_s * 1_000)]

    def brief_waits(self, dialect: str) -> list[Any]:
        return [_set_local("lock_timeout", BRIEF_WAIT_MS)] if dialect == POSTGRESQL else []


class InboxTable:
    def __init__(self, name: str) -> None:
        self.table = inbox_table(MetaData(), name)

    def insert(self, group: str, found: MessageId, now: datetime) -> Any:
        return insert(self.table).values(self._row(group, found, now))

    def insert_new(self, dialect: str, group: str, found: MessageId, now: datetime) -> Any:
        """Gives a row where it has inserted one, and none where that was there. None for a database without such a
        statement."""
        module = {POSTGRESQL: postgresql, "sqlite": sqlite}.get(dialect)
        if module is None:
            return None
        made = module.insert(self.table).values(self._row(group, found, now))
        # SQLAlchemy counts no rows of an insert.
        return made.on_conflict_do_nothing().returning(self.table.c.message_id)

    def replace_other(self, group: str, found: MessageId, now: datetime) -> Any:
        """Of a message that was at the same place in a topic of the same name."""
        columns = self.table.c
        return (
            update(self.table)
            .where(
                columns.consumer_group == group,
                columns.message_id == found.text,
                columns.record_ms != found.record_ms,
            )
            .values(record_ms=found.record_ms, handled_at=now)
        )

    def older(self, group: str, before: datetime, most: int) -> Any:
        columns = self.table.c
        return (
            select(columns.message_id)
            .where(columns.consumer_group == group, columns.handled_at < before)
            .order_by(columns.handled_at)
            .limit(most)
        )

    def remove(self, group: str, ids: Sequence[str]) -> Any:
        columns = self.table.c
        return delete(self.table).where(columns.consumer_group == group, columns.message_id.in_(ids))

    def _row(self, group: str, found: MessageId, now: datetime) -> dict[str, Any]:
        return {
            "consumer_group": group, "message_id": found.text, "record_ms": found.record_ms, "handled_at": now,
        }  # fmt: skip


def _set_local(name: str, value_ms: float) -> Any:
    return text(f"SELECT set_config('{name}', :value, true)").bindparams(value=f"{int(value_ms)}ms")
