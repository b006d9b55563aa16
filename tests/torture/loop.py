"""An event loop in virtual time: nothing waits, nothing runs beside it, and the dice say what comes first.

asyncio's own loop, with a selector that lets the clock leap to the next timer instead of waiting. What the broker hands
to threads runs in the loop, some time later. So a seed makes one history, each time the same.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

BEGIN_S = 10_000.0
"""Of the monotonic clock."""
BEGIN_MS = 1_700_000_000_000
"""Of the wall clock, Unix ms."""
HANGS_AFTER = 200_000
"""Rounds of the loop in which no time passes."""


class HangsError(Exception):
    """The loop turns without an end, or has nothing to wait for."""


class VirtualLoop(asyncio.BaseEventLoop):
    """Run it with `run_until_complete`. Time is in seconds, and stands still while something is ready."""

    def __init__(self, dice: random.Random) -> None:
        super().__init__()
        self.dice = dice
        self.now_s = BEGIN_S
        self.slow = dice.choice((1.0, 1.0, 30.0, 200.0))
        """How much longer threads take than on a quick machine, and what they do on a quick disk."""
        self.rounds = 0
        self._still = 0
        self._selector = self
        self._clock_resolution = 1e-6

    def time(self) -> float:
        return self.now_s

    def select(self, timeout: float | None) -> list[object]:
        """In the place of a selector: the wait for the next timer."""
        self.rounds += 1
        self._still += 1
        if timeout is None or self._still > HANGS_AFTER:
            raise HangsError("nothing to wait for" if timeout is None else "the loop turns, and no time passes")
        if timeout > 0:
            self.now_s += timeout
            self._still = 0
        return []

    def _process_events(self, event_list: object) -> None:
        pass

    def _write_to_self(self) -> None:
        pass

    def run_in_executor(self, executor: object, func: Callable[..., Any], *args: Any) -> Any:
        """As a thread does it, some time later."""
        done = self.create_future()

        def run() -> None:
            try:
                done.set_result(func(*args))
            except BaseException as error:  # the death of the process, too
                done.set_exception(error)

        self.call_later(self.some_s(), run)
        return done

    def some_s(self) -> float:
        """How long something takes that is mostly quick."""
        dice = self.dice
        chance = dice.random()
        if chance < 0.9:
            return dice.uniform(20e-6, 2e-3)
        return dice.uniform(2e-3, 0.03) if chance < 0.99 else dice.uniform(0.03, 0.5)


class Clock:
    """The machine's clocks: the monotonic one is the loop's, the wall clock may be set."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop
        self.set_by_ms = 0
        """How far the wall clock is ahead of where it would be if nobody had set it."""

    def wall_ms(self) -> int:
        return BEGIN_MS + self.set_by_ms + int((self._loop.now_s - BEGIN_S) * 1000)

    def mono_ms(self) -> int:
        return int(self._loop.now_s * 1000)


class Seconds:
    """The module `time`, for code that measures itself. Each look costs a little, so loops that wait for an end have
    one."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop
        self._looks_s = 0.0

    def perf_counter(self) -> float:
        self._looks_s += self._loop.dice.uniform(1e-7, 4e-5) * self._loop.slow
        return self._loop.now_s + self._looks_s

    monotonic = thread_time = process_time = perf_counter

    def perf_counter_ns(self) -> int:
        return int(self.perf_counter() * 1e9)

    monotonic_ns = thread_time_ns = process_time_ns = perf_counter_ns


class ProcessLoop:
    """The loop, as one process sees it: what it has scheduled ends with it."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop
        self.alive = True
        self.accepting: Callable[[], asyncio.BufferedProtocol] | None = None
        """Makes the protocol of a new connection, while somebody listens."""

    def _guarded(self, callback: Callable[..., object]) -> Callable[..., None]:
        def call(*args: object) -> None:
            if self.alive:
                callback(*args)

        return call

    def call_soon(self, callback: Callable[..., object], *args: object) -> asyncio.Handle:
        return self._loop.call_soon(self._guarded(callback), *args)

    call_soon_threadsafe = call_soon

    def call_later(self, delay_s: float, callback: Callable[..., object], *args: object) -> asyncio.TimerHandle:
        return self._loop.call_later(delay_s, self._guarded(callback), *args)

    def time(self) -> float:
        return self._loop.time()

    def get_debug(self) -> bool:
        return False

    def create_future(self) -> asyncio.Future[Any]:
        return self._loop.create_future()

    def create_task(self, what: Any) -> asyncio.Task[Any]:
        return self._loop.create_task(what)

    def run_in_executor(self, executor: object, work: Callable[[], object]) -> Future[object]:
        return Pool(self, self._loop).submit(work)

    async def create_server(self, make: Any, host: str, port: int, **more: object) -> _Listening:
        self.accepting = make
        return _Listening(self, (host, port or 1))


class _Listening:
    """What `create_server` returns, and its socket."""

    def __init__(self, loop: ProcessLoop, address: tuple[str, int]) -> None:
        self._loop = loop
        self._address = address
        self.sockets = [self]

    def getsockname(self) -> tuple[str, int]:
        return self._address

    def close(self) -> None:
        self._loop.accepting = None

    async def wait_closed(self) -> None:
        pass


class Pool:
    """A ThreadPoolExecutor of one thread: what was handed in first is run first, each some time later."""

    def __init__(self, process: ProcessLoop, loop: VirtualLoop) -> None:
        self._process = process
        self._loop = loop
        self._waiting: deque[tuple[Callable[[], Any], Future[Any]]] = deque()

    def submit(self, work: Callable[..., Any], *args: Any) -> Future[Any]:
        future: Future[Any] = Future()
        self._waiting.append(((lambda: work(*args)) if args else work, future))
        if len(self._waiting) == 1:
            self._next()
        return future

    def _next(self) -> None:
        self._process.call_later(min(1.0, self._loop.some_s() * self._loop.slow), self._run)

    def _run(self) -> None:
        if self._waiting:
            work, future = self._waiting[0]
            try:
                result = work()
            except Exception as error:
                self._waiting.popleft()
                future.set_exception(error)
            else:
                self._waiting.popleft()
                # The work is done, and nobody has heard of it yet: a moment in which much can happen.
                self._process.call_later(self._loop.some_s() / 4, future.set_result, result)
            if self._waiting:
                self._next()

    def shutdown(self, wait: bool = True) -> None:
        while self._waiting:
            work, future = self._waiting.popleft()
            try:
                future.set_result(work())
            except Exception as error:
                future.set_exception(error)
