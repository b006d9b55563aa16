"""What a node that starts asks of the database until it answers: it may be started before that, or while it is slow."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from halfmoon.cluster.engine.database import DatabaseUnavailableError

T = TypeVar("T")
logger = logging.getLogger("halfmoon.cluster")

AGAIN_S: Final = 1.0


async def until_it_answers(ask: Callable[[], Awaitable[T]]) -> T:
    """What it says; whatever is wrong with the way to it may be over later. Whoever waits may be cancelled."""
    while True:
        try:
            return await ask()
        except DatabaseUnavailableError as error:
            logger.warning("event=database_unavailable again_s=%g error=%s", AGAIN_S, error)
        await asyncio.sleep(AGAIN_S)
