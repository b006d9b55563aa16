"""What a start has done is undone, last first, and waited for."""

from __future__ import annotations

import asyncio
from collections.abc import Generator

import pytest

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


def test_the_undoing_of_what_was_cancelled_is_not_itself_cancelled() -> None:
    """`translated` asks the task, and takes a database's error for the cancellation."""
    done: list[str] = []

    async def asks_the_database() -> None:
        task = asyncio.current_task()
        assert task is not None
        done.append(f"cancelling {task.cancelling()}")

    async def waits_for_what_is_cancelled() -> None:
        gone = asyncio.get_running_loop().create_future()
        gone.cancel()
        await gone

    async def start() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await undo([lambda: done.append("first"), waits_for_what_is_cancelled, asks_the_database])

    async def story() -> None:
        starting = asyncio.create_task(start())
        await asyncio.sleep(0)
        starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await starting
        assert done == ["cancelling 0", "first"]

    asyncio.run(story())


def test_whoever_is_cancelled_while_something_is_undone_waits_for_its_end() -> None:
    done: list[str] = []

    async def story() -> None:
        begun, ends = asyncio.Event(), asyncio.Event()

        async def takes_long() -> None:
            begun.set()
            await ends.wait()
            done.append("long")

        undoing = asyncio.create_task(undo([lambda: done.append("first"), takes_long]))
        await begun.wait()
        undoing.cancel()
        await asyncio.sleep(0)
        ends.set()
        with pytest.raises(asyncio.CancelledError):
            await undoing
        assert done == ["long", "first"]

    asyncio.run(story())
