"""An outbox and an inbox: a database and the broker agree, whichever program crashes.

    halfmoon.outbox.sqlalchemy, halfmoon.outbox.psycopg            Outbox and Inbox
    halfmoon.outbox.aio.sqlalchemy, halfmoon.outbox.aio.psycopg    the same, awaited

An outbox sends half messages, so there is no table that has to be polled: only the outcome of each transaction is kept,
with which check-backs are answered (docs/outbox.md).
"""

from __future__ import annotations

from halfmoon.kafka import NotStoredError
from halfmoon.outbox.inbox import header
from halfmoon.outbox.messages import OutboxError, Transaction
from halfmoon.outbox.outbox import BaseOutbox
from halfmoon.outbox.table import State, inbox_sql, outbox_sql

__all__ = ["BaseOutbox", "NotStoredError", "OutboxError", "State", "Transaction", "header", "inbox_sql", "outbox_sql"]
