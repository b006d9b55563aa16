"""The answers of one connection: as bytes, and in the order of its requests.

Kafka's clients match answers to requests by their order. So each request whose answer is not there at once, or that
stands behind such a one, has a place here, and an answer leaves when all before it have left. The bytes go to the
socket in `connection`; nothing here knows it.
"""

from __future__ import annotations

import struct
from collections import deque
from typing import TYPE_CHECKING, Final, cast

from halfmoon.adapters.kafka.protocol import encode_response
from halfmoon.adapters.tcp.connection import JOIN_BELOW_BYTES, Buffer

if TYPE_CHECKING:
    from collections.abc import Callable

    from halfmoon.adapters.kafka.registry import Deferred
    from halfmoon.adapters.kafka.routes import Route

WAITS_FOR_OTHERS: Final = frozenset({11, 14})
"""JoinGroup and SyncGroup: their answers depend on other members, so a stopping server does not wait for them."""

_RESPONSE: Final = struct.Struct(">ii")
"""Size without itself, and correlation id."""
_FLEXIBLE_RESPONSE: Final = struct.Struct(">iib")
"""The same, and that there are no tagged fields."""


class Slot:
    """The place of an answer in the order of answers."""

    __slots__ = ("begun_s", "buffers", "correlation_id", "deferred", "done", "on_answer", "route", "size")

    def __init__(
        self,
        on_answer: Callable[[Slot, object], None],
        route: Route,
        correlation_id: int,
        deferred: Deferred | None,
        begun_s: float,
    ) -> None:
        self.on_answer = on_answer
        self.begun_s = begun_s
        self.route = route
        self.correlation_id = correlation_id
        self.deferred = deferred
        self.buffers: list[Buffer] = []
        self.size = 0
        """Of the buffers, in bytes."""
        self.done = False

    def finish(self, value: object) -> None:
        """The answer is there."""
        self.deferred = None
        self.on_answer(self, value)


class Answers:
    """Those that one connection owes, oldest first."""

    __slots__ = ("ready_bytes", "slots")

    def __init__(self) -> None:
        self.slots: deque[Slot] = deque()
        self.ready_bytes = 0
        """Of answers that are ready and wait for one before them."""

    def place(
        self,
        on_answer: Callable[[Slot, object], None],
        route: Route,
        correlation_id: int,
        deferred: Deferred | None,
        begun_s: float,
    ) -> Slot:
        """A place behind all others. `on_answer(slot, value)` is called when the answer is there: it encodes the value
        into the slot, then calls `take_ready`. `begun_s`: when the request came, by `perf_counter`."""
        slot = Slot(on_answer, route, correlation_id, deferred, begun_s)
        self.slots.append(slot)
        return slot

    def take_ready(self, slot: Slot, out: list[Buffer]) -> int | None:
        """`slot` has its buffers now: append all that may leave to `out`. Returns the bytes; None where an answer
        before this one is missing."""
        slot.done = True
        self.ready_bytes += slot.size
        slots = self.slots
        if slots[0] is not slot:
            return None
        taken = 0
        while slots and slots[0].done:
            ready = slots.popleft()
            taken += ready.size
            out += ready.buffers
        self.ready_bytes -= taken
        return taken

    def hurry_last(self) -> None:
        """Another request has come: what waits for messages before it ends its wait."""
        last = self.slots[-1].deferred
        if last is not None and last.hurry is not None:
            last.hurry()

    def hurry(self) -> None:
        for slot in list(self.slots):
            if slot.deferred is not None and slot.deferred.hurry is not None:
                slot.deferred.hurry()

    def depend_on_others(self) -> bool:
        """Whether all that is missing depends on what other clients do; true where nothing is missing."""
        return all(slot.route.key in WAITS_FOR_OTHERS for slot in self.slots)

    def abandon(self) -> None:
        """The connection is gone."""
        for slot in self.slots:
            if slot.deferred is not None:
                slot.deferred.abandon()
        self.slots.clear()


def encode(route: Route, correlation_id: int, value: object) -> tuple[list[Buffer], int]:
    """An answer with its size and header in front, as buffers; and their bytes in all. None is no answer."""
    if value is None:
        return [], 0
    body: Buffer
    if isinstance(value, list):
        size = sum(map(len, value))
    else:
        body = cast(Buffer, value) if route.raw else encode_response(route.version, value)
        size = len(body)
    if route.flexible_response:
        header = _FLEXIBLE_RESPONSE.pack(size + 5, correlation_id, 0)
    else:
        header = _RESPONSE.pack(size + 4, correlation_id)
    size += len(header)
    if isinstance(value, list):
        return [header, *value], size
    return ([header + body] if size < JOIN_BELOW_BYTES else [header, body]), size
