"""Stories in virtual time."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Coroutine
from typing import Any

from tests.torture.loop import VirtualLoop


def play(story: Coroutine[Any, Any, None]) -> None:
    """To its end; whatever goes on beside it ends there."""
    loop = VirtualLoop(random.Random(1))
    try:
        asyncio.set_event_loop(loop)
        loop.run_until_complete(story)
        for task in asyncio.all_tasks(loop):
            task.cancel()
        loop.run_until_complete(asyncio.sleep(1))
    finally:
        asyncio.set_event_loop(None)
        loop.close()
