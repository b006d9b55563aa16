"""Work on many things, some of them at once."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

T = TypeVar("T")

Progress = Callable[[int, int], None]
"""Called now and then with how much is done, and how much there is."""


async def in_parallel(work: Callable[[T], Awaitable[None]], items: Iterable[T], at_once: int) -> None:
    """The first error is raised, and the rest is not done."""
    left = iter(items)

    async def one_after_the_other() -> None:
        for each in left:
            await work(each)

    tasks = [asyncio.ensure_future(one_after_the_other()) for _ in range(at_once)]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
