"""Fetch requests of very many partitions: parsed, read and answered in slices, so that others have their turn.

One that has to wait is parked, and then read once more: something may have come into a partition after it was read and
before the request was parked. What wakes it only says that it is to be read anew.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from halfmoon.adapters.kafka.errors import MalformedRequest, code
from halfmoon.adapters.kafka.fetch_codec import Buffer, encode, parse_in_slices
from halfmoon.adapters.kafka.fetch_reading import Reading
from halfmoon.adapters.kafka.near_fetch import Gathering, near_of
from halfmoon.adapters.kafka.registry import Close, Context, Deferred
from halfmoon.adapters.tcp.steps import AskingSlices, run_steps
from halfmoon.errors import Fault

if TYPE_CHECKING:
    from collections.abc import Callable

    from halfmoon.core.hold import Held

log: Final = logging.getLogger("halfmoon.kafka")

WIDE_BYTES: Final = 12 << 10
"""Of a request's body: some 400 partitions."""

FULL_FETCH_EPOCHS: Final[tuple[int, ...]] = (0, -1)
"""Session epochs that ask for everything: 0 would like a session, -1 ends one or wants none."""


class WideFetch(Deferred):
    """The answer to one."""

    __slots__ = ("_ctx", "_gathering", "_held", "_in_a_hurry", "_reading")

    def __init__(self, ctx: Context, body: bytes) -> None:
        super().__init__()
        self._ctx = ctx
        self._held: Held | None = None
        self._gathering: Gathering | None = None
        """What is asked elsewhere."""
        self._in_a_hurry = False
        self._reading: Reading | None = None
        self.hurry = self._hurried
        self._run(self._begin(memoryview(body)))

    def _run(self, steps: AskingSlices[list[Buffer] | None]) -> None:
        peer = self._ctx.peer
        peer.soon(lambda: run_steps(steps, self._load, self._answered, self._failed, peer.soon))

    def _load(self, work: Callable[[], object], then: Callable[[object, BaseException | None], None]) -> None:
        assert self._reading is not None
        self._reading.load(work, then)

    def _begin(self, body: memoryview) -> AskingSlices[list[Buffer] | None]:
        """None: it waits. Raises MalformedRequest."""
        ctx = self._ctx
        request = yield from parse_in_slices(body, ctx.api_version)
        if request.session_epoch not in FULL_FETCH_EPOCHS:
            return encode([], ctx.api_version, request.read_committed, code(Fault.FETCH_SESSION_ID_NOT_FOUND))
        ctx.limit_fetch(request)
        reading = self._reading = Reading(ctx, request)
        near = near_of(reading) if request.rack else None
        yield from reading.read_in_slices()
        if near is not None and near.asked:
            self._gathering = Gathering(reading, near, lambda: self._run(self._again(reading)))
            self._gathering.begin()
            if self._in_a_hurry:
                self._gathering.hurry()
            return None
        if self._is_over(reading):
            return (yield from reading.answer_in_slices())
        held = self._park(reading)
        yield from reading.read_in_slices()
        if self._held is not held:
            return None  # it was woken meanwhile, and that goes on
        if not self._is_over(reading):
            held.missing_bytes = min(held.missing_bytes, request.min_bytes - reading.size)
            return None
        ctx.core.hold.release(held)
        self._held = None
        return (yield from reading.answer_in_slices())

    def _again(self, reading: Reading) -> AskingSlices[list[Buffer] | None]:
        yield from reading.read_in_slices()
        return (yield from reading.answer_in_slices())

    def _is_over(self, reading: Reading) -> bool:
        return self._in_a_hurry or reading.satisfied()

    def _park(self, reading: Reading) -> Held:
        mono_ms = reading.core.clock.mono_ms()
        # Asked when a transaction ends. The periodic check would look at thousands of partitions for nothing.
        ready = reading.enough_available if reading.request.read_committed else None
        held = self._held = reading.to_park(mono_ms, self._wake, ready)
        reading.core.hold.park(held, mono_ms)
        return held

    def _hurried(self) -> None:
        self._in_a_hurry = True
        if self._gathering is not None:
            self._gathering.hurry()
        if self._held is not None and self._ctx.core.hold.release(self._held):
            self._wake()

    def _wake(self) -> None:
        self._held = self.hurry = None
        # A reading of its own: the one before may still be under way.
        assert self._reading is not None
        reading = self._reading = Reading(self._ctx, self._reading.request)
        self._run(self._again(reading))

    def _answered(self, answer: list[Buffer] | None) -> None:
        if answer is not None:
            # Whatever still points at this: what was loaded must not wait for a garbage collection.
            self.hurry = self._reading = self._gathering = None
            self.complete(answer)

    def _failed(self, error: Exception) -> None:
        self.hurry = self._reading = self._gathering = None
        if self._held is not None:
            self._ctx.core.hold.release(self._held)
            self._held = None
        if isinstance(error, MalformedRequest):
            self.complete(Close(str(error)))
        else:
            # A programmer's error, as one in a handler ends the connection.
            log.error("event=request_failed api=Fetch peer=%s", self._ctx.peer.peer_host, exc_info=error)
            self.complete(Close("a fetch failed"))
