"""What a node does again and again while it lives, whatever comes of it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from halfmoon.cluster.engine.database import DatabaseUnavailableError
from halfmoon.cluster.engine.objects import StoreUnavailableError

log: Final = logging.getLogger("halfmoon.cluster")


class Upkeep:
    """Create it anywhere; everything else is called in the loop."""

    def __init__(self) -> None:
        self._tasks: list[asyncio.Task[None]] = []

    def go_on(
        self,
        step: Callable[[], Awaitable[None]],
        interval_s: float,
        *,
        at_once: bool = False,
        soon: asyncio.Event | None = None,
    ) -> None:
        """`at_once`: the first time, too. `soon`: it is not waited any longer once this is set."""
        work = _again_and_again(step, interval_s, at_once, soon or asyncio.Event())
        self._tasks.append(asyncio.get_running_loop().create_task(work))

    async def stop(self) -> None:
        """Returns when no step goes on any more."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks.clear()


async def _again_and_again(
    step: Callable[[], Awaitable[None]], interval_s: float, at_once: bool, soon: asyncio.Event
) -> None:
    if not at_once:
        await _wait(interval_s, soon)
    while True:
        soon.clear()
        try:
            await step()
        except (DatabaseUnavailableError, StoreUnavailableError, OSError) as error:  # OSError: told by a Backing
            log.info("event=unavailable step=%s error=%s", step.__name__.strip("_"), error)
        except Exception:
            log.exception("event=upkeep_failed step=%s", step.__name__.strip("_"))
        await _wait(interval_s, soon)


async def _wait(interval_s: float, soon: asyncio.Event) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(interval_s):
            await soon.wait()
