"""What becomes of the driver's errors."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import asyncpg
import pytest

from halfmoon.cluster.engine.database import DatabaseUnavailableError
from halfmoon.cluster.postgres.connecting import Access, translated
from halfmoon.cluster.postgres.logs import PostgresLogs


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
