"""A broker in a thread of this process, with an event loop of its own."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import warnings
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from halfmoon.config.settings import load_settings
from halfmoon.server.measured_loop import MeasuredLoop
from halfmoon.testing import temporary

if TYPE_CHECKING:
    from halfmoon.server.app import App
    from halfmoon.testing.instrument import Instrument
    from halfmoon.testing.state import State

START_TIMEOUT_S = 60.0
LEAVE_S = 5.0

T = TypeVar("T")


class InThread:
    """Of one start. It knows nothing of who has started it, so that a broker which nobody has any more is stopped."""

    def __init__(self, config: Mapping[str, Any], plugins: tuple[object, ...], state: State) -> None:
        """`config`: all sections."""
        self._config = config
        self._plugins = plugins
        self._state = state
        self._started = threading.Event()
        self._error: BaseException | None = None
        self._is_killed = False
        self._left_behind: str | None = None
        """A directory that goes with the thread."""
        self._thread = threading.Thread(target=self._run, name="halfmoon-broker", daemon=True)
        self._end: asyncio.Event | None = None
        self.loop: asyncio.AbstractEventLoop | None = None
        self.app: App | None = None
        self.instrument: Instrument | None = None
        self.addresses: dict[str, str] = {}

    def start(self, ready: Callable[[App], object]) -> None:
        """Returns when it serves. `ready` is called in its loop before. Raises what keeps it from that."""
        self._ready = ready
        self._thread.start()
        if not self._started.wait(START_TIMEOUT_S):
            raise TimeoutError(f"the broker did not start within {START_TIMEOUT_S} s")
        if self._error is not None:
            self._thread.join()
            raise self._error

    def stop(self) -> None:
        """Raises what has ended it, if that was not this."""
        self._tell_to_end()
        self._thread.join()
        self.app = None
        if self._error is not None:
            raise self._error

    def kill(self) -> None:
        """As `stop`, in the way in which a process is killed."""
        self._is_killed = True
        self.stop()

    def leave(self, folder: str | None) -> None:
        """Nobody has it any more: it stops by itself, and removes this directory."""
        self._left_behind = folder
        self._tell_to_end()
        if threading.current_thread() is not self._thread:  # which may have collected the garbage
            # So that the interpreter does not end meanwhile. Not for ever: whoever is here may hold a lock.
            self._thread.join(LEAVE_S)

    def call(self, make: Callable[[App], Awaitable[T]]) -> T:
        """Done in its loop. Raises what it raises."""
        app, loop = self.app, self.loop
        assert app is not None and loop is not None, "the broker is not running"

        async def work() -> T:
            return await make(app)

        return asyncio.run_coroutine_threadsafe(work(), loop).result()

    def _tell_to_end(self) -> None:
        if self.loop is not None and self._end is not None:
            with contextlib.suppress(RuntimeError):  # it has ended by itself, and its loop is closed
                self.loop.call_soon_threadsafe(self._end.set)

    def _run(self) -> None:
        try:
            with asyncio.Runner(loop_factory=MeasuredLoop) as runner:
                runner.run(self._serve())
        except BaseException as error:  # handed to the thread that waits in `start`
            self._error = error
        finally:
            self._started.set()
            if self._left_behind is not None:
                temporary.remove(self._left_behind)

    async def _serve(self) -> None:
        with warnings.catch_warnings():
            # kafka-python 3.0.12, on import; it must not fail the tests of who makes errors of warnings.
            warnings.filterwarnings("ignore", "(read|open)_text is deprecated", DeprecationWarning)
            from halfmoon.server.app import App
            from halfmoon.testing.instrument import Instrument

        self.loop = asyncio.get_running_loop()
        self._end = asyncio.Event()
        self.instrument = Instrument(self._state)
        app = App(load_settings(self._config, {}, {}), plugins=self._plugins, instruments=self.instrument)
        await app.start()
        self._ready(app)
        doors = {"kafka": app.kafka_address, "rocketmq": app.rocketmq_address, "namesrv": app.namesrv_address}
        doors["http"] = app.http_address
        self.addresses = {name: str(address) for name, address in doors.items() if address is not None}
        self.app = app
        self._started.set()
        try:
            await self._end.wait()
        finally:
            await (app.kill() if self._is_killed else app.stop())
