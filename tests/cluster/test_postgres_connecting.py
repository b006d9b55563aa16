"""What becomes of the driver's errors."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit

import asyncpg
import pytest

from halfmoon.cluster.engine.database import DatabaseUnavailableError
from halfmoon.cluster.postgres import connecting
from halfmoon.cluster.postgres.catalog import read_cluster
from halfmoon.cluster.postgres.connecting import Access, translated
from halfmoon.cluster.postgres.hosts import Hosts
from halfmoon.cluster.postgres.logs import PostgresLogs
from halfmoon.errors import StartError
from tests.cluster.servers import postgres


@pytest.mark.parametrize(
    "error",
    [
        ConnectionResetError(104, "reset"),
        TimeoutError(),
        asyncpg.InterfaceError("connection is closed"),
        asyncpg.AdminShutdownError("terminating connection"),
    ],
)
def test_a_task_that_was_cancelled_ends_though_its_transaction_could_not_be_undone(error: Exception) -> None:
    async def call() -> None:
        with translated():
            try:
                await asyncio.sleep(60)
            finally:
                raise error

    async def again_and_again() -> None:
        for _ in range(2):
            try:
                await call()
            except DatabaseUnavailableError:
                await asyncio.sleep(0)

    async def story() -> None:
        task = asyncio.create_task(again_and_again())
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task], timeout=1)
        assert task.cancelled()

    asyncio.run(story())


@pytest.mark.parametrize(
    "error",
    [
        asyncpg.InvalidPasswordError("password authentication failed"),
        asyncpg.InvalidAuthorizationSpecificationError("no pg_hba.conf entry"),
        asyncpg.InvalidCatalogNameError("database does not exist"),
        asyncpg.InternalServerError("server login has been failing"),
        OSError("the file of the password is away"),
    ],
)
def test_a_login_that_is_refused_may_be_accepted_later(error: Exception) -> None:
    async def call() -> None:
        with translated():
            raise error

    with pytest.raises(DatabaseUnavailableError):
        asyncio.run(call())


def test_a_certificate_that_does_not_verify_may_do_so_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is a ValueError, too, and so are the words of an address."""

    async def connect(dsn: str, **_: Any) -> None:
        if "port" in dsn:
            raise ValueError("invalid port")
        raise ssl.SSLCertVerificationError(1, "certificate has expired")

    monkeypatch.setattr(asyncpg, "connect", connect)
    with pytest.raises(DatabaseUnavailableError, match="certificate has expired"):
        asyncio.run(read_cluster(Access("postgresql://u@h/d")))
    with pytest.raises(StartError, match=r"\$.cluster.database: invalid port"):
        asyncio.run(read_cluster(Access("postgresql://u@h:port/d")))


def test_a_password_is_asked_for_at_each_connect(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may have been changed since."""
    found: list[Any] = []

    async def connect(dsn: str, **settings: Any) -> None:
        found.append(settings["password"]())

    monkeypatch.setattr(asyncpg, "connect", connect)
    passwords = iter(["first", "second"])
    access = Access("postgresql://u@h/d", lambda: next(passwords))
    for _ in range(2):
        asyncio.run(access.connect())
    assert found == ["first", "second"]


def test_a_limit_of_time_inside_is_an_error_of_the_database() -> None:
    async def call() -> None:
        with translated():
            async with asyncio.timeout(0.01):
                await asyncio.sleep(60)

    with pytest.raises(DatabaseUnavailableError):
        asyncio.run(call())


def test_the_pool_is_closed_also_where_the_session_with_the_lock_cannot_be() -> None:
    done: list[str] = []

    async def session() -> None:
        done.append("session")
        raise TimeoutError

    async def pool() -> None:
        done.append("pool")

    async def story() -> None:
        of_pool: Any = SimpleNamespace(close=pool)
        access: Any = None
        logs = PostgresLogs(access, of_pool)
        logs._lock = SimpleNamespace(close=session)
        with pytest.raises(DatabaseUnavailableError):
            await logs.close()
        assert done == ["session", "pool"]

    asyncio.run(story())


class Silent:
    """A host that is switched off, but for that it counts who asks."""

    def __init__(self) -> None:
        self.asked = 0
        self.has_asked = asyncio.Event()

    async def _say_nothing(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.asked += 1
        self.has_asked.set()
        await reader.read()
        await reader.read()
        writer.close()

    @asynccontextmanager
    async def before(self, dsn: str) -> AsyncIterator[str]:
        """An address with this one before its own."""
        server = await asyncio.start_server(self._say_nothing, "127.0.0.1", 0)
        try:
            port = server.sockets[0].getsockname()[1]
            host = urlsplit(dsn).netloc.partition("@")[2]
            yield dsn.replace(host, f"127.0.0.1:{port},{host}")
        finally:
            server.close()
            await asyncio.sleep(0)


def test_a_host_that_is_silent_costs_one_time_out_once(monkeypatch: pytest.MonkeyPatch) -> None:
    server = postgres()
    monkeypatch.setattr(connecting, "HOST_S", 0.2)
    monkeypatch.setattr(connecting, "CALL_S", 0.4)

    async def story() -> None:
        silent = Silent()
        async with silent.before(await server.new_database()) as dsn:
            access = Access(dsn)
            pool = await access.pool()
            try:
                for _ in range(2):
                    async with connecting.transaction(pool) as pooled:
                        assert await pooled.fetchval("select 1") == 1
                    connection = await access.connect()
                    await connection.close()
                    await pool.expire_connections()
            finally:
                await pool.close()
            assert silent.asked == 1

    asyncio.run(story())


def test_who_stops_to_wait_for_a_silent_host_asks_another_one_next() -> None:
    """The time that a caller has may be shorter than that for a host."""
    server = postgres()

    async def story() -> None:
        silent = Silent()
        async with silent.before(await server.new_database()) as dsn:
            access = Access(dsn)
            waiting = asyncio.ensure_future(access.connect())
            await silent.has_asked.wait()
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            connection = await access.connect()
            await connection.close()
            assert silent.asked == 1

    asyncio.run(story())


def test_of_several_hosts_each_is_said_why_not(monkeypatch: pytest.MonkeyPatch) -> None:
    async def connect(dsn: str, **_: Any) -> None:
        raise ConnectionRefusedError(111, "refused") if "h1" in dsn else TimeoutError

    monkeypatch.setattr(asyncpg, "connect", connect)
    with pytest.raises(DatabaseUnavailableError) as raised:
        asyncio.run(Access("postgresql://u:secret@h1,h2:6432/d").connect())
    assert str(raised.value) == (
        "h1: ConnectionRefusedError: [Errno 111] refused; h2:6432: TimeoutError: no answer in time"
    )


@pytest.mark.parametrize(
    ("dsn", "each"),
    [
        ("postgresql://u:p@h1/d?sslmode=require", ["postgresql://u:p@h1/d?sslmode=require"]),
        ("postgresql://u:p@h1,h2:6432/d", ["postgresql://u:p@h1/d", "postgresql://u:p@h2:6432/d"]),
        ("postgres://[::1]:1,[::2]/d?a=b%20c", ["postgres://[::1]:1/d?a=b%20c", "postgres://[::2]/d?a=b%20c"]),
        (
            "postgresql:///d?host=h1,h2&port=1,2&user=u",
            ["postgresql:///d?host=h1&port=1&user=u", "postgresql:///d?host=h2&port=2&user=u"],
        ),
        ("postgresql://h1,h2/d?port=7", ["postgresql://h1/d?port=7", "postgresql://h2/d?port=7"]),
        ("postgresql://h1,h2/d?port=7,8,9", ["postgresql://h1,h2/d?port=7,8,9"]),
        ("postgresql://[h1,h2/d", ["postgresql://[h1,h2/d"]),
        ("no address", ["no address"]),
    ],
)
def test_an_address_becomes_one_for_each_host(dsn: str, each: list[str]) -> None:
    assert [host.dsn for host in Hosts(dsn).order] == each
