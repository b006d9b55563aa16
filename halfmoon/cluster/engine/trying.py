"""Calls to the store and to the database are made some times before they count as failed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from halfmoon.cluster.engine.database import DatabaseUnavailableError
from halfmoon.cluster.engine.objects import StoreUnavailableError

T = TypeVar("T")

TRIES: Final = 5
FIRST_PAUSE_S: Final = 0.05


async def try_again(call: Callable[[], Awaitable[T]]) -> T:
    """Raises what the last try has raised, if it is StoreUnavailableError or DatabaseUnavailableError; others at
    once."""
    pause_s = FIRST_PAUSE_S
    for _ in range(TRIES - 1):
        try:
            return await call()
        except (StoreUnavailableError, DatabaseUnavailableError):
            await asyncio.sleep(pause_s)
            pause_s *= 2
    return await call()
