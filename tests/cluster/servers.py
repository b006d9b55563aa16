"""PostgreSQL and an object store for tests, where they are installed: one server for all tests of a process."""

from __future__ import annotations

import atexit
import itertools
import shutil
import tempfile
from pathlib import Path

import pytest

from halfmoon.testing.object_store import VERSION, StoreServer, program
from halfmoon.testing.postgres import PostgresServer, programs


class Databases:
    def __init__(self, server: PostgresServer) -> None:
        self._server = server
        self._numbers = itertools.count()

    async def new_database(self) -> str:
        """Its DSN."""
        import asyncpg

        name = f"cluster_{next(self._numbers)}"
        connection = await asyncpg.connect(self._server.dsn())
        try:
            await connection.execute(f"create database {name}")
        finally:
            await connection.close()
        return self._server.dsn(name)


async def of_poor_role(dsn: str) -> str:
    """The same database, which is now owned by a role that may not call pg_logical_emit_message; its DSN."""
    import asyncpg

    connection = await asyncpg.connect(dsn)
    try:
        if not await connection.fetchval("select count(*) from pg_roles where rolname = 'poor'"):
            await connection.execute("create role poor login")
        database = await connection.fetchval("select current_database()")
        await connection.execute(f"alter database {database} owner to poor")
        for (function,) in await connection.fetch(
            "select oid::regprocedure::text from pg_proc where proname = 'pg_logical_emit_message'"
        ):
            await connection.execute(f"revoke execute on function {function} from public")
    finally:
        await connection.close()
    return dsn.replace("halfmoon@", "poor@")


_databases: Databases | None = None


def postgres() -> Databases:
    """Skips the test where there is no PostgreSQL."""
    global _databases
    pytest.importorskip("asyncpg", reason="asyncpg is not installed: pip install 'halfmoon[cluster]'")
    if programs() is None:
        pytest.skip("PostgreSQL is not installed (Debian: apt-get install postgresql)")
    if _databases is None:
        folder = Path(tempfile.mkdtemp(prefix="halfmoon-postgres-"))
        folder.chmod(0o755)  # root's server is another user's
        server = PostgresServer(folder / "data", durable=False)
        server.__enter__()
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        atexit.register(server.stop)
        _databases = Databases(server)
    return _databases


_store: StoreServer | None = None


def object_store() -> StoreServer:
    """Skips the test where there is no versitygw."""
    global _store
    pytest.importorskip("obstore", reason="obstore is not installed: pip install 'halfmoon[cluster]'")
    if program() is None:
        pytest.skip(f"versitygw is not installed (go install github.com/versity/versitygw/cmd/versitygw@{VERSION})")
    if _store is None:
        folder = Path(tempfile.mkdtemp(prefix="halfmoon-store-"))
        _store = StoreServer(folder / "data")
        _store.__enter__()
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        atexit.register(_store.stop)
    return _store
