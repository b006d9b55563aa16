"""What a start has done is undone, last first, and waited for."""

from __future__ import annotations

import asyncio
from collections.abc import Generator

from halfmoon.server.running import undo


class Compiled:
    """As what a compiled coroutine function returns: it can be awaited, and is no coroutine of the interpreter's."""

    def __init__(self, done: list[str]) -> None:
        self._done = done

    def __await__(self) -> Generator[None, None, None]:
        yield
        self._done.append("compiled")


def test_all_that_can_be_awaited_is_waited_for_last_first() -> None:
    done: list[str] = []

    async def coroutine() -> None:
        await asyncio.sleep(0)
        done.append("coroutine")

    def fails() -> None:
        raise OSError("it is gone already")

    asyncio.run(undo([lambda: done.append("plain"), coroutine, fails, lambda: Compiled(done)]))
    assert done == ["compiled", "coroutine", "plain"]
