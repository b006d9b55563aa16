"""Fetch (1): hand out whole batches as they lie in the log, or wait until there are enough of them.

Versions 4-18; topics are named by id from version 13 on (KIP-516). Every request is answered as a full fetch with
session id 0, which is how a broker says that it keeps no session (KIP-227).

Waiting: if all partitions are well, `min_bytes` are not there and `max_wait_ms` is not 0, the request is parked in the
hold service and answered with what there is when enough has arrived, at its deadline, or as soon as another request
comes on its connection (`Deferred.hurry`); in that last case Kafka lets the other request wait instead.

What is read, and how much of it: fetch_reading.py. Requests of very many partitions: wide_fetch.py. Readers that say
in which rack they are: near_fetch.py.

Rules: KafkaApis.handleFetchRequest, FetchManager.newContext.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from halfmoon.adapters.kafka.errors import code
from halfmoon.adapters.kafka.fetch_codec import encode, parse
from halfmoon.adapters.kafka.fetch_reading import Reading, complete
from halfmoon.adapters.kafka.near_fetch import near_fetch, near_of
from halfmoon.adapters.kafka.registry import Context, Deferred
from halfmoon.adapters.kafka.wide_fetch import FULL_FETCH_EPOCHS, WIDE_BYTES, WideFetch
from halfmoon.errors import Fault

if TYPE_CHECKING:
    from halfmoon.core.hold import Held


def handle(ctx: Context, body: memoryview) -> object:
    if len(body) > WIDE_BYTES:
        return WideFetch(ctx, bytes(body))
    request = parse(body, ctx.api_version)
    if request.session_epoch not in FULL_FETCH_EPOCHS:
        return encode([], ctx.api_version, request.read_committed, code(Fault.FETCH_SESSION_ID_NOT_FOUND))
    ctx.limit_fetch(request)
    reading = Reading(ctx, request)
    if request.rack:
        near = near_of(reading)
        if near is not None and near.asked:
            return near_fetch(reading, near)
    reading.read()
    if reading.satisfied():
        return reading.answer()
    return ParkedFetch(reading)


class ParkedFetch(Deferred):
    """A fetch that waits for messages. Whatever ends the wait, it is read anew and answered with what there is."""

    __slots__ = ("_held", "_reading")

    def __init__(self, reading: Reading) -> None:
        super().__init__()
        self.hurry = self._hurried
        self._held: Held | None
        self._reading = reading
        mono_ms = reading.core.clock.mono_ms()
        held = self._held = reading.to_park(mono_ms, self._wake, reading.enough_available)
        reading.core.hold.park(held, mono_ms)

    def _hurried(self) -> None:
        if self._held is not None and self._reading.core.hold.release(self._held):
            self._wake()

    def _wake(self) -> None:
        # This object and what it is parked as point at each other; let go, so that no garbage collection is needed.
        self._held = self.hurry = None
        complete(self, self._reading)
