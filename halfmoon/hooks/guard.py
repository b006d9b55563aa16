"""Calls of plugins' functions: none of them ends the broker, and one that holds up the loop is named.

Every function that a plugin hands over, but a built-in one's, is called through `Guard.wrap`. What it raises that is no
Exception (SystemExit, as `exit()` does) becomes one, and is dealt with as the hook's *Error* says. Only a coroutine may
raise CancelledError, and only it and a generator GeneratorExit: there they are asyncio's and Python's own. A function
raises CancelledError when it asks a cancelled task for its result, and no caller expects that.

A call in the loop's thread that takes longer than `SLOW_S` is counted (`halfmoon_plugin_slow_calls_total`), and logged
once a minute for each plugin and hook. Of a coroutine or a generator each step counts by itself.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import Counter
from collections.abc import Callable, Generator
from time import perf_counter
from types import CoroutineType, GeneratorType
from typing import Any, TypeVar

from msgspec import Struct, structs

log = logging.getLogger("halfmoon.plugins")

SLOW_S = 0.1
LOGGED_S = 60.0
"""A plugin is named in the log this often at most, for each of its hooks."""

T = TypeVar("T")

OF_FUNCTIONS = (Exception,)
"""What passes."""
OF_GENERATORS = (Exception, GeneratorExit)
OF_COROUTINES = (Exception, GeneratorExit, asyncio.CancelledError)
Passing = tuple[type[BaseException], ...]

LONG_S = 0.002
"""A call in the loop's thread that takes longer is told to `Guard.on_long`."""


class PluginExitError(Exception):
    """A plugin has raised what would end the process."""


class Guard:
    """One for all plugins of a broker."""

    def __init__(self, now: Callable[[], float] = perf_counter) -> None:
        self._now = now
        self.loop_thread = 0
        """Who waits while a plugin works; 0 until the broker runs."""
        self.slow: Counter[tuple[str, str]] = Counter()
        """(plugin, hook) → calls in the loop that took longer than SLOW_S."""
        self._logged: dict[tuple[str, str], float] = {}
        self.on_long: Callable[[float], object] = lambda begun_s: None
        """Called with the time at which a call began that has just ended."""

    def runs_here(self) -> None:
        """The loop runs in this thread."""
        self.loop_thread = threading.get_ident()

    def given(self, plugin: str, hook: str, thing: T) -> T:
        """The same with its functions guarded: a function, or a record of functions, which may be nested."""
        made: Any = thing
        if isinstance(thing, Struct):
            fields = {field: getattr(thing, field) for field in thing.__struct_fields__}
            guarded = {
                field: self.given(plugin, hook, value)
                for field, value in fields.items()
                if isinstance(value, Struct) or (callable(value) and not isinstance(value, type))
            }
            made = structs.replace(thing, **guarded) if guarded else thing
        elif callable(thing):
            made = self.wrap(plugin, hook, thing)
        return made  # type: ignore[no-any-return]

    def wrap(self, plugin: str, hook: str, call: Callable[..., Any]) -> Callable[..., Any]:
        """The function, guarded."""
        step = self._step

        def guarded(*given: Any, **named: Any) -> Any:
            made = step(OF_FUNCTIONS, plugin, hook, call, *given, **named)
            kind = type(made)
            if kind is GeneratorType:
                return self._generator(OF_GENERATORS, plugin, hook, made)
            if kind is CoroutineType:
                return self._coroutine(plugin, hook, made)
            if hook == "halfmoon_filters" and hasattr(made, "match"):
                return _Filter(made.needle, self.wrap(plugin, hook, made.match), getattr(made, "takes_long", False))
            return made

        guarded.__wrapped__ = call  # type: ignore[attr-defined]
        if hasattr(call, "wants_previous"):  # of an allocation strategy
            guarded.wants_previous = call.wants_previous  # type: ignore[attr-defined]
        return guarded

    def _step(
        self, passing: Passing, plugin: str, hook: str, call: Callable[..., Any], *given: Any, **named: Any
    ) -> Any:
        begun_s = self._now()
        try:
            return call(*given, **named)
        except passing:
            raise
        except BaseException as error:
            raise PluginExitError(f"plugin {plugin}: {hook} raised {error!r}") from error
        finally:
            took_s = self._now() - begun_s
            if took_s > LONG_S and threading.get_ident() == self.loop_thread:
                self.on_long(begun_s)
                if took_s > SLOW_S:
                    self._was_slow(plugin, hook, took_s)

    def _was_slow(self, plugin: str, hook: str, took_s: float) -> None:
        key, now = (plugin, hook), self._now()
        self.slow[key] += 1
        if now - self._logged.get(key, -LOGGED_S) >= LOGGED_S:
            self._logged[key] = now
            log.warning(
                "event=plugin_slow plugin=%s hook=%s took_ms=%d calls=%d",
                plugin, hook, took_s * 1_000, self.slow[key],
            )  # fmt: skip

    def _generator(
        self, passing: Passing, plugin: str, hook: str, made: Generator[Any, Any, Any]
    ) -> Generator[Any, Any, Any]:
        """Its steps, one by one."""
        call: Callable[..., Any] = made.send
        given: object = None
        try:
            while True:
                try:
                    yielded = self._step(passing, plugin, hook, call, given)
                except StopIteration as done:
                    return done.value
                try:
                    given, call = (yield yielded), made.send
                except GeneratorExit:
                    raise
                except BaseException as error:
                    given, call = error, made.throw
        finally:
            made.close()

    async def _coroutine(self, plugin: str, hook: str, made: CoroutineType[Any, Any, Any]) -> Any:
        return await _Steps(self._generator(OF_COROUTINES, plugin, hook, made))  # type: ignore[arg-type]


class _Steps:
    """A generator that asyncio can wait for."""

    def __init__(self, steps: Generator[Any, Any, Any]) -> None:
        self._steps = steps

    def __await__(self) -> Generator[Any, Any, Any]:
        return self._steps


class _Filter:
    """A compiled expression of a filter language (services/common/filters.MessageFilter)."""

    def __init__(self, needle: Any, match: Callable[..., bool], takes_long: object) -> None:
        self.needle = needle
        self.match = match
        self.takes_long = takes_long is True
