"""Requests that are worked at in slices: read, handled, answered, written (see `tcp/slices.py`).

While a handler is under way its connection handles nothing else, so what one client asks happens in its order. Once the
handler is done, and only the log or the writing of the answer is waited for, the next request may come.

A connection that closes ends the work where it is. What the request has changed until then stays changed, as with a
broker that dies: each topic, partition or rule of a request is changed for itself, and nobody was told anything.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from halfmoon.adapters.kafka.protocol import (
    LARGE_BYTES,
    Slices,
    decode_request,
    decode_request_slices,
    encode_response_slices,
    release,
)
from halfmoon.adapters.kafka.registry import Close, Context, Deferred
from halfmoon.adapters.tcp.slices import Job, Slicing

if TYPE_CHECKING:
    from halfmoon.adapters.kafka.routes import Route


STEPS_AT_ONCE: Final = 8
"""Of the handler of a short request: most end within them, and are answered as those that work in no slices."""
AT_ONCE_S: Final = 0.001
"""… unless they take longer than this, as where a topic of 10,000 partitions is made."""


def _nothing() -> None: ...


def _hurry(waiting: Deferred) -> None:
    if waiting.hurry is not None:
        waiting.hurry()


def _nobody(_: Exception) -> None: ...


def _released(_: None) -> None: ...


class InSlices:
    """The requests of one connection."""

    __slots__ = ("_failed", "_gone", "_jobs", "_on_handled", "_slicing", "busy")

    def __init__(self, slicing: Slicing, on_handled: Callable[[], None], failed: Callable[[Exception], None]) -> None:
        """`on_handled`: a handler is done, and the next request may come. `failed`: work has raised something."""
        self._slicing = slicing
        self._on_handled = on_handled
        self._failed = failed
        self._jobs: list[Job] = []
        self._gone = False
        self.busy = False
        """A handler is under way."""

    def handle(
        self,
        route: Route,
        context: Context,
        body: memoryview,
        until: float,
        handle: Callable[[Context, Any], object],
    ) -> object:
        """What the handler returns, where the request is a short one and so is its work; else a Deferred of the
        answer's bytes, or Close: it is worked at until this time, and then whenever it is its turn. `body` must stay
        what it is where it is a large one."""
        if len(body) > LARGE_BYTES:
            kept: list[Any] = []
            large = _handle(route, context, body, handle, kept)
            return self._begin_answer(route, large, until, may_wait=True, kept=kept)
        work = handle(context, body if route.raw else decode_request(route.key, route.version, body))
        if not isinstance(work, Generator):
            return work
        round_time = self._slicing.round_time()
        at_once_until = min(until, round_time.now() + AT_ONCE_S)
        try:
            for _ in range(STEPS_AT_ONCE):
                next(work)
                if round_time.is_over(at_once_until):
                    break
        except StopIteration as end:
            return end.value
        # It has read its request; where the turn is over, it waits for its next one.
        return self._begin_answer(route, work, until, may_wait=True)

    def _begin_answer(
        self, route: Route, work: Slices[object], until: float, *, may_wait: bool, kept: Sequence[Any] = ()
    ) -> Deferred:
        """`kept`: requests that are read until the answer is there."""
        answer = Deferred()
        self.busy = True
        in_a_hurry = False

        def hurry() -> None:
            nonlocal in_a_hurry
            in_a_hurry = True

        def handled(result: object) -> None:
            self.busy = False
            answer.hurry = None
            if isinstance(result, Deferred):
                result.then(partial(self._write_later, route, answer, until, kept))
                if not result.done and result.hurry is not None:
                    answer.hurry = partial(_hurry, result)
                    if in_a_hurry:
                        _hurry(result)
            else:
                self._write(route, answer, until, result)
            self._on_handled()

        answer.hurry = hurry
        self._begin(work, handled, until, may_wait=may_wait)
        return answer

    def _write_later(self, route: Route, answer: Deferred, until: float, kept: Sequence[Any], value: object) -> None:
        self._write(route, answer, until, value)
        for request in () if self._gone else kept:
            self._begin(release(request), _released, until)

    def _write(self, route: Route, answer: Deferred, until: float, value: object) -> None:
        if self._gone:
            return
        if route.raw or value is None or isinstance(value, Close):
            answer.complete(value)
        else:
            self._begin(encode_response_slices(route.version, value), answer.complete, until)

    def _begin(self, work: Slices[Any], done: Callable[[Any], None], until: float, *, may_wait: bool = False) -> None:
        self._jobs = [job for job in self._jobs if job.goes_on]
        job = self._slicing.begin(work, done, self._failed, until, may_wait=may_wait)
        if job.goes_on:
            self._jobs.append(job)

    def drop(self) -> None:
        """The connection is gone: end what is under way."""
        self._gone = True
        self._on_handled, self._failed = _nothing, _nobody  # or the two would hold each other
        jobs, self._jobs = self._jobs, []
        for job in jobs:
            job.cancel()


def _handle(
    route: Route, context: Context, body: memoryview, handle: Callable[[Context, Any], object], kept: list[Any]
) -> Slices[object]:
    """`kept` gets the request where the handler has not done with it."""
    if route.raw:
        return (yield from settled(handle(context, body)))
    request = yield from decode_request_slices(route.key, route.version, body)
    result = yield from settled(handle(context, request))
    if isinstance(result, Deferred) and not result.done:
        kept.append(request)
    else:
        yield from release(request)
    return result


def settled(result: object) -> Slices[object]:
    """What a handler returns, whether it works in slices or not."""
    if isinstance(result, Generator):
        result = yield from result
    return result
