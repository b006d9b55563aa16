"""What the driver never answers is an unavailable database, sooner or later."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

pytest.importorskip("asyncpg", reason="asyncpg is not installed: pip install 'halfmoon[cluster]'")

from halfmoon.cluster.engine.database import DatabaseUnavailableError
from halfmoon.cluster.postgres import connecting, logs


class Mute:
    """A pool, its connections and their transactions: nothing of it ever ends."""

    @asynccontextmanager
    async def acquire(self, timeout: float) -> AsyncIterator[Any]:
        yield self

    @asynccontextmanager
    async def transaction(self, isolation: str) -> AsyncIterator[Any]:
        yield self

    async def fetch(self, *_: object) -> Any:
        await asyncio.get_running_loop().create_future()

    fetchrow = fetch


def test_a_call_that_the_driver_never_ends_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "LIMIT_S", 0.01)
    monkeypatch.setattr(connecting, "LIMIT_S", 0.01)

    async def story() -> None:
        database = logs.PostgresLogs(None, Mute())  # type: ignore[arg-type]
        async with asyncio.timeout(5):
            with pytest.raises(DatabaseUnavailableError):
                await database.heads()
            with pytest.raises(DatabaseUnavailableError):
                await database.contents(0)

    asyncio.run(story())
