"""Coroutines in virtual time: the engine's flows are `async def`, and this runs them.

A flow that asks a broker, waits for the answer, sleeps and asks another one is a state machine with a state for each
wait. Written as a coroutine it reads as what it does, and is no less sans-I/O: nothing in here knows a thread, a socket
or a clock. Whoever owns the kernel says how late it is (`advance`), and what was waited for (`Pending.set`). Tests run
16 retries over hours in milliseconds.

What becomes ready while something runs, runs after it and not within it (`run_ready`), so that no caller finds its own
state changed under its hands.
"""

from __future__ import annotations

import heapq
import logging
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from typing import Any, Generic, TypeVar

T = TypeVar("T")

FAILED_MS = 3_000
"""Before something that has failed begins again."""

log = logging.getLogger("halfmoon.client")


class Cancelled(BaseException):
    """Thrown into a task that is not to go on."""


class Pending(Generic[T]):
    """A result that is not there yet. It may be awaited, by any number of tasks, and told to functions."""

    __slots__ = ("_callbacks", "_error", "_value", "is_done")

    def __init__(self) -> None:
        self.is_done = False
        self._value: T
        self._error: BaseException | None = None
        self._callbacks: list[Callable[[Pending[T]], object]] | None = None

    def set(self, value: T) -> None:
        """The first result counts."""
        if not self.is_done:
            self._value = value
            self._finish()

    def fail(self, error: BaseException) -> None:
        if not self.is_done:
            self._error = error
            self._finish()

    def _finish(self) -> None:
        self.is_done = True
        callbacks, self._callbacks = self._callbacks, None
        for callback in callbacks or ():
            callback(self)

    def when_done(self, callback: Callable[[Pending[T]], object]) -> None:
        """Have it called with this; at once, if the result is there."""
        if self.is_done:
            callback(self)
        elif self._callbacks is None:
            self._callbacks = [callback]
        else:
            self._callbacks.append(callback)

    def forget(self, callback: Callable[[Pending[T]], object]) -> None:
        if self._callbacks is not None and callback in self._callbacks:
            self._callbacks.remove(callback)

    @property
    def error(self) -> BaseException | None:
        """What went wrong, if it is done."""
        return self._error

    def result(self) -> T:
        """Raises what went wrong. It must be done."""
        if self._error is not None:
            raise self._error
        return self._value

    def __await__(self) -> Generator[Pending[T], None, T]:
        if not self.is_done:
            yield self
        return self.result()


class Timer:
    """Something that is to be called at a time, unless it is cancelled."""

    __slots__ = ("call",)

    def __init__(self, call: Callable[[], object]) -> None:
        self.call: Callable[[], object] | None = call

    def cancel(self) -> None:
        self.call = None


class Task(Pending[T]):
    """A coroutine that runs."""

    __slots__ = ("_coroutine", "_kernel", "_resume", "_waits_for", "is_awaited", "name")

    def __init__(self, kernel: Kernel, coroutine: Coroutine[Pending[Any], None, T], name: str) -> None:
        super().__init__()
        self.name = name
        self._kernel = kernel
        self._coroutine = coroutine
        self._waits_for: Pending[Any] | None = None
        self._resume = self._woken
        self.is_awaited = False
        """Somebody wants to know what comes of it."""

    def when_done(self, callback: Callable[[Pending[T]], object]) -> None:
        self.is_awaited = True
        super().when_done(callback)

    def result(self) -> T:
        self.is_awaited = True
        return super().result()

    def cancel(self) -> None:
        """Have it end where it waits; what it is waiting for goes on."""
        if self.is_done:
            return
        if self._waits_for is not None:
            self._waits_for.forget(self._resume)
            self._waits_for = None
        self._kernel.call_soon(lambda: self._step(Cancelled()))

    def _woken(self, _: Pending[Any]) -> None:
        self._waits_for = None
        self._kernel.call_soon(self._step)

    def _step(self, thrown: BaseException | None = None) -> None:
        if self.is_done:
            return
        try:
            pending = self._coroutine.send(None) if thrown is None else self._coroutine.throw(thrown)
        except StopIteration as end:
            self.set(end.value)
        except (Cancelled, Exception) as error:
            self.fail(error)
        else:
            self._waits_for = pending
            pending.when_done(self._resume)
            return
        self._kernel._ended(self)


class Kernel:
    """The tasks and timers of one client."""

    def __init__(self, now_ms: float = 0.0, wall_ms: Callable[[], int] = lambda: 0) -> None:
        self.now_ms = now_ms
        """Monotonic, since any point."""
        self.wall_ms = wall_ms
        """() → Unix ms: for what is written into messages, never for what is waited for."""
        self._timers: list[tuple[float, int, Timer]] = []
        self._ready: deque[Callable[[], object]] = deque()
        self._number = 0
        self._tasks: set[Task[Any]] = set()

    # -- tasks -------------------------------------------------------------------------------------------------------

    def spawn(self, coroutine: Coroutine[Pending[Any], None, T], name: str) -> Task[T]:
        """Have it run, from the next `run_ready` on. An error that nobody awaits is logged."""
        task = Task(self, coroutine, name)
        self._tasks.add(task)
        self.call_soon(task._step)
        return task

    def keep(self, flow: Callable[[], Coroutine[Pending[Any], None, None]], name: str) -> Task[None]:
        """Have `flow()` run until it is cancelled or ends. What goes wrong in it is logged, and it begins again."""
        return self.spawn(self._keep(flow, name), name)

    async def _keep(self, flow: Callable[[], Coroutine[Pending[Any], None, None]], name: str) -> None:
        while True:
            try:
                await flow()
            except Exception:
                log.exception("event=task_failed task=%s", name)
                await self.sleep_ms(FAILED_MS)
            else:
                return

    def _ended(self, task: Task[Any]) -> None:
        self._tasks.discard(task)
        error = task.error
        if error is not None and not isinstance(error, Cancelled) and not task.is_awaited:
            log.error("event=task_failed task=%s", task.name, exc_info=error)

    def cancel_all(self) -> None:
        for task in list(self._tasks):
            task.cancel()

    # -- time --------------------------------------------------------------------------------------------------------

    def call_soon(self, call: Callable[[], object]) -> None:
        self._ready.append(call)

    def call_after(self, delay_ms: float, call: Callable[[], object]) -> Timer:
        timer = Timer(call)
        self._number += 1
        heapq.heappush(self._timers, (self.now_ms + delay_ms, self._number, timer))
        return timer

    def sleep_ms(self, delay_ms: float) -> Pending[None]:
        pending: Pending[None] = Pending()
        self.call_after(delay_ms, lambda: pending.set(None))
        return pending

    async def within_ms(self, pending: Pending[T], limit_ms: float) -> bool:
        """Wait until it is done, but no longer; whether it is."""
        either: Pending[None] = Pending()

        def done(_: Pending[T]) -> None:
            either.set(None)

        pending.when_done(done)
        timer = self.call_after(limit_ms, lambda: either.set(None))
        await either
        timer.cancel()
        pending.forget(done)
        return pending.is_done

    def advance(self, now_ms: float) -> None:
        """It is so late now. What is due is called, in order, each with the tasks that it wakes.

        After a stop of the whole process it may be late for much: nobody is told that it was earlier, or a lock would
        look younger than it is.
        """
        self.now_ms = max(self.now_ms, now_ms)
        self.run_ready()
        while self._timers and self._timers[0][0] <= self.now_ms:
            timer = heapq.heappop(self._timers)[2]
            if timer.call is not None:
                timer.call()
                self.run_ready()

    def run_ready(self) -> None:
        ready = self._ready
        while ready:
            ready.popleft()()

    def next_deadline_ms(self) -> float | None:
        """When `advance` is to be called at the latest; None: nothing waits for a time."""
        timers = self._timers
        while timers and timers[0][2].call is None:
            heapq.heappop(timers)
        return timers[0][0] if timers else None
