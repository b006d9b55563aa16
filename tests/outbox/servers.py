"""A PostgreSQL for the tests of the outbox, where it is installed: one server for all tests of a process."""

from __future__ import annotations

import atexit
import itertools
import shutil
import tempfile
from pathlib import Path

import pytest

from halfmoon.testing.postgres import PostgresServer, programs

_server: PostgresServer | None = None
_numbers = itertools.count()


def postgres() -> PostgresServer:
    """Skips the test where there is no PostgreSQL, or no psycopg."""
    global _server
    pytest.importorskip("psycopg", reason="psycopg is not installed: pip install 'halfmoon[outbox]'")
    if programs() is None:
        pytest.skip("PostgreSQL is not installed (Debian: apt-get install postgresql)")
    if _server is None:
        folder = Path(tempfile.mkdtemp(prefix="halfmoon-outbox-postgres-"))
        folder.chmod(0o755)  # root's server is another user's
        server = PostgresServer(folder / "data", durable=False)
        server.__enter__()
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        atexit.register(server.stop)
        _server = server
    return _server


def new_database() -> str:
    """The DSN of a database that nobody else has."""
    import psycopg

    server = postgres()
    name = f"outbox_{next(_numbers)}"
    with psycopg.connect(server.dsn(), autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
    return server.dsn(name)


def for_sqlalchemy(dsn: str) -> str:
    return dsn.replace("postgresql://", "postgresql+psycopg://")
