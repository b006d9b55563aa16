"""uvloop's loop, which measures what it calls: see adapters/tcp/turns.py.

Everything that asyncio or somebody here hands to the loop is called through `_measured`: timers, steps of tasks, what
threads have done. What the loop calls by itself is a protocol's methods, and those of our connections measure
themselves. So does whoever uses `Turns.quick_soon`: the few calls of each produced batch, for which two more looks at
the clock would be felt. The garbage collector tells when it works.

The cause of a turn is found out afterwards, and only where the turn was long: by where its function stands.
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
import gc
import threading
from collections.abc import Callable, Mapping
from time import perf_counter
from typing import Any, TypeVarTuple

import uvloop

from halfmoon.adapters.tcp.turns import CONNECTION, LOOK_S, PLUGIN, TICK, Turns

Ts = TypeVarTuple("Ts")

TIMER, RELAY, BACKGROUND, HTTP, GC, OTHER = "timer", "relay", "background", "http", "gc", "other"

FUNCTIONS: Mapping[str, str] = {
    "Ticker._again": TIMER,
    "Ticker._retain": BACKGROUND,
    "Ticker._job_ended": BACKGROUND,
    "_Background.begin": BACKGROUND,
    "_Background._look_on": BACKGROUND,
    "_Background._ended": BACKGROUND,
}
"""Of server/tick.py, whose others are TICK."""

MODULES: Mapping[str, str] = {
    "halfmoon.server.tick": TICK,
    "halfmoon.server.relaying": RELAY,
    "halfmoon.server.http": HTTP,
    "halfmoon.server.loop_lag": TIMER,
    "halfmoon.server.deadlines": TIMER,
    "halfmoon.server.services": PLUGIN,
    "halfmoon.adapters": CONNECTION,
    "halfmoon": OTHER,
    "asyncio": OTHER,
}
"""Also of what is in them."""


class MeasuredLoop(uvloop.Loop):
    """Its turns are in `turns`."""

    def __init__(self) -> None:
        self.turns = Turns()
        super().__init__()
        self.turns.quick_soon = super().call_soon
        self._collecting = (0.0, 0.0)
        self._thread = 0
        gc.callbacks.append(self._collects)

    def close(self) -> None:
        if self._collects in gc.callbacks:
            gc.callbacks.remove(self._collects)
        super().close()

    def run_forever(self) -> None:
        self._thread = threading.get_ident()
        super().run_forever()

    def call_soon(
        self, callback: Callable[[*Ts], object], *args: *Ts, context: contextvars.Context | None = None
    ) -> asyncio.Handle:
        return super().call_soon(self._measured, callback, *args, context=context)

    def call_soon_threadsafe(
        self, callback: Callable[[*Ts], object], *args: *Ts, context: contextvars.Context | None = None
    ) -> asyncio.Handle:
        return super().call_soon_threadsafe(self._measured, callback, *args, context=context)

    def call_later(
        self, delay: float, callback: Callable[[*Ts], object], *args: *Ts, context: contextvars.Context | None = None
    ) -> asyncio.TimerHandle:
        return super().call_later(delay, self._measured, callback, *args, context=context)

    def call_at(
        self, when: float, callback: Callable[[*Ts], object], *args: *Ts, context: contextvars.Context | None = None
    ) -> asyncio.TimerHandle:
        return super().call_at(when, self._measured, callback, *args, context=context)

    def _measured(self, callback: Callable[..., object], *args: object) -> None:
        turns = self.turns
        begun_s = perf_counter()
        turns.begin(begun_s)
        cpu_s = turns.cpu_s
        try:
            callback(*args)
        finally:
            if perf_counter() - begun_s > LOOK_S:
                turns.took(cause_of(callback), begun_s, cpu_s)

    def _collects(self, phase: str, info: dict[str, int]) -> None:
        if threading.get_ident() != self._thread:
            return
        if phase == "start":
            self._collecting = perf_counter(), self.turns.cpu_now()
            return
        begun_s, cpu_s = self._collecting
        if perf_counter() - begun_s > LOOK_S:
            self.turns.took(GC, begun_s, cpu_s)


def cause_of(callback: Callable[..., object]) -> str:
    """What a function that the loop calls is about: by where it stands, and a step of a task by where its coroutine
    stands."""
    while isinstance(callback, functools.partial):
        callback = callback.func
    task = getattr(callback, "__self__", None)
    if isinstance(task, asyncio.Task):
        coroutine = task.get_coro()
        frame = getattr(coroutine, "cr_frame", None)
        module = frame.f_globals.get("__name__", "") if frame is not None else _module_of(coroutine)
        return _of_module(str(module))
    # A method of a compiled class says nothing of its module.
    module = getattr(callback, "__module__", None) or type(task).__module__
    if module == "halfmoon.server.tick":
        return FUNCTIONS.get(getattr(callback, "__qualname__", ""), TICK)
    return _of_module(module)


def _module_of(coroutine: Any) -> str:
    """Of one that has ended: by the file of its code."""
    code = getattr(coroutine, "cr_code", None)
    if code is None:
        return ""
    _, found, rest = code.co_filename.rpartition("halfmoon/")
    return f"halfmoon.{rest.removesuffix('.py').replace('/', '.')}" if found else ""


def _of_module(module: str) -> str:
    while module:
        cause = MODULES.get(module)
        if cause is not None:
            return cause
        module = module.rpartition(".")[0]
    return OTHER
