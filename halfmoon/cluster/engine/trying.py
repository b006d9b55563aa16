"""Calls to the store and to the database are made some times before they count as failed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from halfmoon.cluster.engine.database import DatabaseUnavailableError
from halfmoon.cluster.engine.objects import ObjectExistsError, ObjectMissingError, ObjectStore, StoreUnavailableError

T = TypeVar("T")

TRIES: Final = 5
FIRST_PAUSE_S: Final = 0.05


async def try_again(call: Callable[[], Awaitable[T]], first_pause_s: float = FIRST_PAUSE_S) -> T:
    """Raises what the last try has raised, if it is StoreUnavailableError or DatabaseUnavailableError; others at
    once."""
    pause_s = first_pause_s
    for _ in range(TRIES - 1):
        try:
            return await call()
        except (StoreUnavailableError, DatabaseUnavailableError):
            await asyncio.sleep(pause_s)
            pause_s *= 2
    return await call()


async def put_once(store: ObjectStore, key: str, data: bytes, first_pause_s: float = FIRST_PAUSE_S) -> None:
    """It is there when this returns. Raises OSError where another one is; StoreUnavailableError."""

    async def put() -> None:
        try:
            await store.put(key, data)
        except ObjectExistsError:  # by a try whose answer was lost
            try:
                size = await store.size(key)
            except ObjectMissingError:  # S3 says the same where another request was in the way
                raise StoreUnavailableError(f"object {key}: conflict, and it is not there") from None
            if size != len(data):
                raise OSError(f"object {key} is there, and is another one") from None

    await try_again(put, first_pause_s)
