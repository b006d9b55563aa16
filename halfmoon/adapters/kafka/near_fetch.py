"""Fetches of consumers that say in which rack they are: what of them other nodes lead is read first (nearby.py).

Meanwhile the request waits for this node's own partitions, too. Whichever has enough first ends the wait; then all of
it is answered with what there is. The end of its connection ends the wait, too, and nothing is read then.
"""

from __future__ import annotations

from collections.abc import Callable

from halfmoon.adapters.kafka.fetch_reading import Reading, complete
from halfmoon.adapters.kafka.nearby import Near, Nearby, NearResults
from halfmoon.adapters.kafka.registry import Deferred
from halfmoon.core.hold import Held


def near_of(reading: Reading) -> Near | None:
    """How a request that names a rack is read; None where nodes are in none."""
    ctx, request = reading.ctx, reading.request
    nearby = ctx.services.find(Nearby)
    if nearby is None:
        return None
    near = reading.near = Near(request.rack, nearby)
    catalog, owners, me = ctx.core.catalog, ctx.core.owners, ctx.core.node_id
    for key, wanted in request.topics:
        topic = catalog.topic(key) if isinstance(key, str) else catalog.topic_by_id(key)
        if topic is None or topic.hidden or not ctx.allows("read", "topic", topic.name):
            continue
        for one in wanted:
            if 0 <= one.index < len(topic.partitions):
                partition = topic.partitions[one.index]
                if owners.owner_of(partition) != me and near.serves(partition):
                    near.asked.append((partition, one))
    return near


class Gathering:
    """Of one request that was read once, so that what this node leads is known."""

    def __init__(self, reading: Reading, near: Near, told: Callable[[], None]) -> None:
        """`told`, once: the request is to be read anew, and answered. Not where its connection is gone."""
        self._reading = reading
        self._near = near
        self._told = told
        self._held: Held | None = None
        self._end: Callable[[], None] | None = None
        self._is_gone = False

    def begin(self) -> None:
        reading, request = self._reading, self._reading.request
        missing = request.min_bytes - reading.size
        over = reading.failed or missing <= 0 or request.max_wait_ms <= 0
        if not over:
            mono_ms = reading.core.clock.mono_ms()
            held = self._held = reading.to_park(mono_ms, self.hurry, reading.enough_available)
            reading.core.hold.park(held, mono_ms)
        self._near.nearby.waits(reading.ctx.peer.owner, self._gone)
        self._end = self._near.elsewhere.read(
            self._near.asked, request, max(1, missing), 0 if over else request.max_wait_ms, self._found
        )

    def hurry(self) -> None:
        """Have it answered with what there is."""
        if self._end is not None:
            self._end()

    def _gone(self) -> None:
        self._is_gone = True
        self._near.asked.clear()
        self.hurry()

    def _found(self, results: NearResults) -> None:
        self._end = None
        if self._is_gone:
            return
        self._near.nearby.has_read(self._reading.ctx.peer.owner, self._gone)
        if self._held is not None:
            self._reading.core.hold.release(self._held)
            self._held = None
        self._near.results = results
        self._told()


def near_fetch(reading: Reading, near: Near) -> Deferred:
    """The answer to a request of which something is to be read elsewhere."""
    deferred = Deferred()
    reading.read()

    def found() -> None:
        deferred.hurry = None
        complete(deferred, reading)

    gathering = Gathering(reading, near, found)
    deferred.hurry = gathering.hurry
    gathering.begin()
    return deferred
