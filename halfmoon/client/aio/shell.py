"""The engine in an asyncio loop: everything happens there, so there is no lock."""

from __future__ import annotations

import asyncio
import inspect
import logging
import os
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from halfmoon.client.engine.kernel import Kernel, Pending
from halfmoon.client.engine.listening import Work, said
from halfmoon.client.engine.network import Connection, Network
from halfmoon.client.errors import NotRunningError
from halfmoon.client.making import now_ms

if TYPE_CHECKING:
    import ssl

GOODBYE_S = 1.0
"""So long a node has to answer that a connection by TLS ends."""

T = TypeVar("T")

log = logging.getLogger("halfmoon.client")


class _Protocol(asyncio.Protocol):
    """One connection."""

    def __init__(self, shell: Shell, connection: Connection) -> None:
        self._shell = shell
        self._connection = connection
        self.transport: asyncio.Transport | None = None
        self.out: list[bytes] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        if self._connection.is_closed:  # it took too long
            transport.close()
            return
        self.transport = transport
        self._shell.opened(self)
        self._shell.tell(self._shell.network.connected, self._connection)

    def data_received(self, data: bytes) -> None:
        self._shell.tell(self._shell.network.received, self._connection, data)

    def connection_lost(self, error: Exception | None) -> None:
        self._shell.is_lost(self)
        why = str(error) if error is not None else "the node has closed the connection"
        self._shell.tell(self._shell.network.closed, self._connection, why)


class Shell:
    """A Driver. `kernel` and `network` are to be set before it is used, which is in one loop."""

    kernel: Kernel
    network: Network

    def __init__(self, most: int = 1) -> None:
        self.most = most
        """Listeners at a time."""
        self.tls: ssl.SSLContext | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._dirty: set[_Protocol] = set()
        """Have something to send."""
        self._open: dict[_Protocol, asyncio.Future[None]] = {}
        """By TLS, with what is done when they are lost."""
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ms = 0.0
        self._works: deque[Work] = deque()
        self._running = 0
        self._tasks: set[asyncio.Task[Any]] = set()
        self._is_stopping = False
        self._process_id = -1
        self.on_failure: Callable[[], object] = lambda: None
        """A loop does not fail."""

    # -- for callers -------------------------------------------------------------------------------------------------

    def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._process_id = os.getpid()

    @property
    def is_running(self) -> bool:
        return self._loop is not None and not self._is_stopping

    def call(self, function: Callable[..., T], *args: Any, **options: Any) -> T:
        """Have the engine do something."""
        if not self.is_running:
            raise NotRunningError("the client is not running")
        if os.getpid() != self._process_id:
            raise NotRunningError("the client was started by the process that this one was forked from")
        return self.tell(function, *args, **options)

    def look(self, function: Callable[[], T]) -> T:
        """What the engine has."""
        return function()

    def tell(self, function: Callable[..., T], *args: Any, **options: Any) -> T:
        """`call`, at the end too."""
        kernel = self.kernel
        kernel.now_ms = max(kernel.now_ms, now_ms())
        try:
            return function(*args, **options)
        finally:
            self._leave()

    def _leave(self) -> None:
        """What the engine was told has consequences."""
        kernel = self.kernel
        kernel.run_ready()
        while self._dirty:
            protocol = self._dirty.pop()
            out, protocol.out = protocol.out, []
            if protocol.transport is not None and out:
                protocol.transport.write(out[0] if len(out) == 1 else b"".join(out))
        deadline_ms = kernel.next_deadline_ms()
        if deadline_ms is None or self._is_stopping or self._loop is None:
            return
        if self._timer is None or deadline_ms < self._timer_ms:
            if self._timer is not None:
                self._timer.cancel()
            self._timer_ms = deadline_ms
            self._timer = self._loop.call_later(max(0.0, deadline_ms - now_ms()) / 1e3, self._time_has_come)

    def _time_has_come(self) -> None:
        self._timer = None
        self.kernel.advance(now_ms())
        self._leave()

    async def wait(self, pending: Pending[T]) -> T:
        """Raises what went wrong. Being cancelled ends the waiting alone."""
        await self.end_of(pending)
        return pending.result()

    async def end_of(self, pending: Pending[Any]) -> None:
        """Wait until it is done, whatever comes of it. Being cancelled ends the waiting alone."""
        if not pending.is_done:
            assert self._loop is not None
            future: asyncio.Future[None] = self._loop.create_future()

            def done(_: Pending[T]) -> None:
                if not future.done():
                    future.set_result(None)

            pending.when_done(done)
            try:
                await future
            finally:
                pending.forget(done)

    async def run(self, function: Callable[..., Pending[T]], *args: Any, **options: Any) -> T:
        """`call`, and `wait` for what comes of it."""
        return await self.wait(self.call(function, *args, **options))

    def spawn(self, coroutine: Coroutine[Any, Any, Any]) -> None:
        """A task that nobody waits for before the end."""
        assert self._loop is not None
        task = self._loop.create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def stop(self) -> None:
        """Listeners that still run are cancelled."""
        self._is_stopping = True
        if self._timer is not None:
            self._timer.cancel()
        self._works.clear()
        tasks = [task for task in self._tasks if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.gather(*tasks, return_exceptions=True)
        if self._open:
            await asyncio.wait(self._open.values(), timeout=GOODBYE_S)
            for protocol in self._open:
                assert protocol.transport is not None
                protocol.transport.abort()
            await asyncio.sleep(0)

    # -- connections by TLS, which take a while to close --------------------------------------------------------------

    def opened(self, protocol: _Protocol) -> None:
        if self.tls is not None:
            self._open[protocol] = asyncio.get_running_loop().create_future()

    def is_lost(self, protocol: _Protocol) -> None:
        lost = self._open.pop(protocol, None)
        if lost is not None and not lost.done():
            lost.set_result(None)

    # -- Driver ------------------------------------------------------------------------------------------------------

    def connect(self, connection: Connection) -> None:
        self.spawn(self._connect(connection))

    async def _connect(self, connection: Connection) -> None:
        assert self._loop is not None
        host, _, port = connection.address.rpartition(":")
        protocol = connection.handle = _Protocol(self, connection)
        try:
            await self._loop.create_connection(lambda: protocol, host.strip("[]"), int(port), ssl=self.tls)
        except OSError as error:
            self.tell(self.network.closed, connection, str(error))

    def write(self, connection: Connection, data: bytes) -> None:
        protocol = connection.handle
        assert isinstance(protocol, _Protocol)
        protocol.out.append(data)
        self._dirty.add(protocol)

    def close(self, connection: Connection) -> None:
        protocol = connection.handle
        if isinstance(protocol, _Protocol) and protocol.transport is not None:
            if protocol.out:
                protocol.transport.write(b"".join(protocol.out))
                protocol.out = []
            protocol.transport.close()

    def submit(self, works: Sequence[Work]) -> None:
        self._works.extend(works)
        while self._works and self._running < self.most and not self._is_stopping:
            self._running += 1
            self.spawn(self._listen())

    # -- listeners ---------------------------------------------------------------------------------------------------

    async def _listen(self) -> None:
        """Works, one after the other, until there are none."""
        try:
            while self._works:
                work = self._works.popleft()
                if not work.is_over:
                    await self._listen_to(work)
        finally:
            self._running -= 1

    async def _listen_to(self, work: Work) -> None:
        status: Any = None
        failure: BaseException | None = None
        if work.process_queue.is_dropped:
            work.is_skipped = True  # somebody else has the queue, and these messages
            self.tell(work.finished, work, None, None)
            return
        work.began_ms = now_ms()
        try:
            status = work.listener(work.messages, work.context)
            if inspect.isawaitable(status):
                status = await status
        except asyncio.CancelledError as error:
            if self._is_stopping:
                raise
            failure = error  # the listener's own affair
        except Exception as error:
            failure = error
        else:
            status, failure = said(work, status)
        self.tell(work.finished, work, None if failure is not None else status, failure)
