"""The two tables: what their rows say, and the statements that make them.

    halfmoon_outbox    one row for each local transaction that sends messages, and for each that was abandoned
    halfmoon_inbox     one row for each message that a consumer group has handled

The first insert of a row decides, for good: the local transaction inserts `committed`, and whoever answers a check-back
of a transaction without a row inserts `abandoned`. The primary key lets only one of the two in.
"""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime, timedelta
from enum import Enum

OUTBOX, INBOX = "halfmoon_outbox", "halfmoon_inbox"

MAX_NAME_CHARACTERS = 255
"""Of a group, and of a transaction."""
MAX_MESSAGE_CHARACTERS = 300
"""Of a message's id: TOPIC/PARTITION/OFFSET takes up to 280."""

KEEP = timedelta(days=7)
"""Rows are removed when they are older. Twice what the broker keeps a half message
(`plugins.transaction.max_age`, 3 d), and as long as it keeps messages by default."""
SLICE_ROWS = 1_000
"""That one statement removes."""
BRIEF_WAIT_MS = 2_000
"""How long the answer to a check-back waits for a local transaction that is still open."""

_OUTBOX_SQL = """\
CREATE TABLE IF NOT EXISTS {name} (
    producer_group VARCHAR(255) NOT NULL,
    transaction_id VARCHAR(255) NOT NULL,
    state VARCHAR(9) NOT NULL,
    created_at TIMESTAMP WITH TIME ZONE NOT NULL,
    PRIMARY KEY (producer_group, transaction_id)
);
CREATE INDEX IF NOT EXISTS {index} ON {name} (producer_group, created_at);
"""
_INBOX_SQL = """\
CREATE TABLE IF NOT EXISTS {name} (
    consumer_group VARCHAR(255) NOT NULL,
    message_id VARCHAR(300) NOT NULL,
    record_ms BIGINT,
    handled_at TIMESTAMP WITH TIME ZONE NOT NULL,
    PRIMARY KEY (consumer_group, message_id)
);
CREATE INDEX IF NOT EXISTS {index} ON {name} (consumer_group, handled_at);
"""


class State(Enum):
    """What became of a local transaction."""

    COMMITTED = "committed"
    ABANDONED = "abandoned"
    """It was not committed, and never will be: its row is taken."""


def outbox_sql(name: str = OUTBOX) -> str:
    """The statements that make the outbox's table, for PostgreSQL and SQLite. `name`: may begin with a schema."""
    return _OUTBOX_SQL.format(name=name, index=index_name(name, "created"))


def inbox_sql(name: str = INBOX) -> str:
    """The statements that make the inbox's table, for PostgreSQL and SQLite. `name`: may begin with a schema."""
    return _INBOX_SQL.format(name=name, index=index_name(name, "handled"))


def index_name(name: str, what: str) -> str:
    return f"{name.rpartition('.')[2]}_{what}"


def schema_and_name(table: str) -> tuple[str | None, str]:
    schema, _, name = table.rpartition(".")
    return schema or None, name


def check_name(what: str, name: str) -> str:
    """Raises ValueError where it does not fit into its column."""
    if not name or len(name) > MAX_NAME_CHARACTERS:
        raise ValueError(f"{what} {name[:40]!r}: expected 1 to {MAX_NAME_CHARACTERS} characters")
    if "\0" in name:
        raise ValueError(f"{what} {name[:40]!r} has a NUL character, which databases do not store")
    return name


def fitting(message_id: str) -> str:
    """An id as it is stored: one that is too long by its SHA-256."""
    if len(message_id) <= MAX_MESSAGE_CHARACTERS and "\0" not in message_id:
        return message_id
    return f"sha256:{hashlib.sha256(message_id.encode(errors='surrogateescape')).hexdigest()}"


def utc_now() -> datetime:
    return datetime.now(UTC)
