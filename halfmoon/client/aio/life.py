"""Starting and closing, and awaiting what the engine does. A client belongs to the loop it was started in."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any, TypeVar

from halfmoon.client.aio.shell import Shell
from halfmoon.client.base import Client
from halfmoon.client.engine.kernel import Cancelled, Pending
from halfmoon.client.errors import NotRunningError

C = TypeVar("C", bound="Life")
T = TypeVar("T")


class Life(Client):
    """Starting, and closing."""

    _shell: Shell

    def _new_shell(self) -> Shell:
        return Shell()

    async def __aenter__(self: C) -> C:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    @abstractmethod
    async def start(self) -> None: ...

    @abstractmethod
    async def close(self) -> None: ...

    async def _run(self, flow: Coroutine[Pending[Any], None, T]) -> T:
        """Have a flow of the engine run to its end."""

        def begin() -> Pending[T]:
            return self._making.kernel.spawn(flow, "call")

        try:
            pending = self._shell.call(begin)
        except NotRunningError:
            flow.close()
            raise
        try:
            return await self._shell.wait(pending)
        except Cancelled:
            raise NotRunningError("the client was closed meanwhile") from None

    async def _begin(self, flow: Callable[[], Coroutine[Pending[Any], None, None]]) -> None:
        """Start with a flow of the engine. If that fails, the client is closed."""
        self._check_start()
        self._shell.start()
        try:
            await self._run(flow())
        except BaseException:
            self._is_closed = True
            await self._stop()
            raise

    async def _end(self, flow: Callable[[], Coroutine[Pending[Any], None, None]]) -> None:
        """Close with a flow of the engine, unless it is closed."""
        if self.is_running:
            self._is_closed = True
            try:
                await self._run(flow())
            finally:
                await self._stop()

    async def _stop(self) -> None:
        if self._shell.is_running:
            self._shell.call(self._making.instance.close)
        await self._shell.stop()
