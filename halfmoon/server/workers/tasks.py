"""Work that goes on beside whoever has begun it: it is kept until it ends, and what it raises is logged."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor
from typing import Any

logger = logging.getLogger("halfmoon.server")

_tasks: set[asyncio.Task[object]] = set()
"""The loop itself would forget them."""


def soon(work: Coroutine[Any, Any, object]) -> None:
    """Have it carried out in the running loop."""
    task = asyncio.get_running_loop().create_task(work)
    _tasks.add(task)
    task.add_done_callback(_ended)


def in_thread(
    threads: Executor, work: Callable[[], object], then: Callable[[object, BaseException | None], None]
) -> None:
    """In one of these, as of adapters/tcp/steps.InThread."""

    def done(future: asyncio.Future[object]) -> None:
        if not future.cancelled():
            error = future.exception()
            then(None if error is not None else future.result(), error)

    asyncio.get_running_loop().run_in_executor(threads, work).add_done_callback(done)


def resolve(future: asyncio.Future[object], answer: object) -> None:
    """As a callback that is told an answer: nobody may wait for it any more."""
    if not future.done():
        future.set_result(answer)


def failed(error: BaseException) -> None:
    """A callback has raised this."""
    logger.error("event=callback_failed", exc_info=error)


def _ended(task: asyncio.Task[object]) -> None:
    _tasks.discard(task)
    if not task.cancelled() and (error := task.exception()) is not None:
        failed(error)
