"""Both shells behind the same calls: a test is written once, and runs with threads and with asyncio."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Callable, Coroutine
from typing import Any

import halfmoon.client
import halfmoon.client.aio

Made = Any


class Threads:
    """halfmoon.client as it is."""

    name = "threads"

    def make(self, kind: str, *args: Any, **options: Any) -> Made:
        return getattr(halfmoon.client, kind)(*args, **options)

    def transactions(self, execute: Callable[..., Any], check: Callable[..., Any]) -> Any:
        """A TransactionListener."""
        return type("Said", (), {
            "execute_local_transaction": staticmethod(execute), "check_local_transaction": staticmethod(check),
        })()  # fmt: skip

    def stop(self) -> None:
        pass


class _Waiting:
    """An asyncio client whose methods wait."""

    def __init__(self, shell: Aio, made: Any) -> None:
        self._shell = shell
        self._made = made

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._made, name)
        if inspect.iscoroutinefunction(found):
            return lambda *args, **options: self._shell.wait(found(*args, **options))
        if callable(found):
            return lambda *args, **options: self._shell.wait(_called(found, *args, **options))
        return found


async def _called(function: Callable[..., Any], *args: Any, **options: Any) -> Any:
    return function(*args, **options)


class Aio:
    """halfmoon.client.aio, in a loop of its own."""

    name = "aio"

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def wait(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(60)

    def make(self, kind: str, *args: Any, **options: Any) -> Made:
        async def make() -> Any:
            return getattr(halfmoon.client.aio, kind)(*args, **options)

        return _Waiting(self, self.wait(make()))

    def transactions(self, execute: Callable[..., Any], check: Callable[..., Any]) -> Any:
        async def execute_(self: Any, message: Any, argument: Any) -> Any:
            return execute(message, argument)

        async def check_(self: Any, message: Any) -> Any:
            return check(message)

        return type("Said", (), {"execute_local_transaction": execute_, "check_local_transaction": check_})()

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
