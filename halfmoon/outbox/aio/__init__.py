"""Outbox and inbox for programs with asyncio: `halfmoon.outbox.aio.sqlalchemy` and `halfmoon.outbox.aio.psycopg`, with
the same names as in `halfmoon.outbox`; what waits is awaited."""
