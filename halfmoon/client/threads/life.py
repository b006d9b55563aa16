"""Starting and closing, and waiting in a thread of the program for what the engine does."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any, TypeVar

from halfmoon.client.base import Client
from halfmoon.client.engine.kernel import Cancelled, Pending
from halfmoon.client.errors import NotRunningError
from halfmoon.client.threads.shell import Shell

C = TypeVar("C", bound="Life")
T = TypeVar("T")


class Life(Client):
    """Starting, and closing."""

    _shell: Shell

    def _new_shell(self) -> Shell:
        return Shell(self.group)

    def __enter__(self: C) -> C:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @abstractmethod
    def start(self) -> None: ...

    @abstractmethod
    def close(self) -> None: ...

    def _run(self, flow: Coroutine[Pending[Any], None, T]) -> T:
        """Have a flow of the engine run to its end."""

        def begin() -> Pending[T]:
            return self._making.kernel.spawn(flow, "call")

        try:
            pending = self._shell.call(begin)
        except NotRunningError:
            flow.close()
            raise
        try:
            return self._shell.wait(pending)
        except Cancelled:
            raise NotRunningError("the client was closed meanwhile") from None

    def _begin(self, flow: Callable[[], Coroutine[Pending[Any], None, None]]) -> None:
        """Start with a flow of the engine. If that fails, the client is closed."""
        self._check_start()
        self._shell.start()
        try:
            self._run(flow())
        except BaseException:
            self._is_closed = True
            self._stop()
            raise

    def _end(self, flow: Callable[[], Coroutine[Pending[Any], None, None]]) -> None:
        """Close with a flow of the engine, unless it is closed."""
        if not self.is_running:
            return
        self._shell.check_may_wait()
        self._is_closed = True
        try:
            self._run(flow())
        finally:
            self._stop()

    def _stop(self) -> None:
        if self._shell.is_running:
            self._shell.call(self._making.instance.close)
        self._shell.stop()
