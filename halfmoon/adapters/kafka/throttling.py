"""Client quotas, enforced: how much a request has used, what its client is told, and how long it is not read from.

There is a `Throttling` only once a quota is set; until then a connection looks at one attribute per request, and that
is all it costs.

The answer leaves at once and says for how long to wait (`throttle_time_ms`); for that time nothing more is read from
the connection, whether the client waits by itself or not (KIP-219). What counts:

- Produce: the bytes of the request, counted when it is handled, so that requests sent behind it wait;
- Fetch: the bytes of the answer. One that would be too much is not sent: an empty one is, and nothing is counted. No
  answer is made larger than what a client at rest may have at once, but for a single batch that is; in Kafka nobody
  ever gets that one;
- ShareFetch: likewise, but what its records are in is sent, since they are locked for this client then; whoever has had
  too much acquires nothing (`Context.must_wait`). Kafka sends nothing and lets the locks run out;
- the time that handling takes, for every API but ApiVersions;
- changes to topics, where the handler counts them (`mutations`).

The longest of the waits is told. A client on several connections waits on each that it uses.

Rules: KafkaApis.handleProduceRequest, handleFetchRequest, RequestHandlerHelper.sendMaybeThrottle.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Generator
from typing import Any, Final

from halfmoon.adapters.kafka.fetch_codec import encode as encode_fetch
from halfmoon.adapters.kafka.protocol import Slices
from halfmoon.adapters.kafka.registry import Close, Context, Deferred
from halfmoon.adapters.kafka.routes import API_VERSIONS, FETCH, PRODUCE, Route
from halfmoon.kafka_wire import primitives as wire
from halfmoon.services.quotas.service import CONSUMED, MUTATIONS, PRODUCED, REQUEST_TIME, Quotas, Throttle

log: Final = logging.getLogger("halfmoon.kafka")

METADATA, DESCRIBE_TOPIC_PARTITIONS = 3, 75
SHARE_FETCH: Final = 78
_FIRST_IN_METADATA: Final = 3
"""From this version on, Metadata's answer begins with the throttle time."""
_FLEXIBLE_PRODUCE: Final = 9

NANOS_TO_PERCENT: Final = 100 / 1e9


class Throttling:
    """For all connections of a server."""

    def __init__(self, quotas: Quotas) -> None:
        self._quotas = quotas

    def handle(self, route: Route, context: Context, request: Any, size: int, mute: Callable[[int], None]) -> object:
        """Call a route's handler, count what it uses, and tell the client to wait if that is too much.

        `size` is the request's, in bytes. `mute(ms)` is called when the client has to wait.
        """
        client_id, user = context.client_id or "", context.peer.principal.name
        started_ns = time.perf_counter_ns()
        result = route.handler(context, request)
        if isinstance(result, Generator):
            return self._in_slices(route, client_id, user, result, mute)
        if route.key == API_VERSIONS:
            return result
        percent = (time.perf_counter_ns() - started_ns) * NANOS_TO_PERCENT
        wait_ms = self._quotas.record(REQUEST_TIME, client_id, percent, user)
        if route.key == PRODUCE:
            produced = Throttle(self._quotas.record(PRODUCED, client_id, size, user), PRODUCED)
            waits = Throttle(wait_ms, REQUEST_TIME), produced
            longest = max(waits)
            if longest.ms:
                self._told(longest, mute)
            return _after(result, lambda value: _say(route, value, longest.ms)) if longest.ms else result
        return _after(result, lambda value: self._answer(route, client_id, user, value, mute))

    def _in_slices(
        self, route: Route, client_id: str, user: str, work: Slices[object], mute: Callable[[int], None]
    ) -> Slices[object]:
        """The same for a handler that works in slices: what others do between them is not the client's."""
        spent_ns = 0
        while True:
            started_ns = time.perf_counter_ns()
            over = False
            try:
                next(work)
            except StopIteration as end:
                result, over = end.value, True
            spent_ns += time.perf_counter_ns() - started_ns
            if over:
                break
            yield
        self._quotas.record(REQUEST_TIME, client_id, spent_ns * NANOS_TO_PERCENT, user)
        return _after(result, lambda value: self._answer(route, client_id, user, value, mute))

    def _answer(self, route: Route, client_id: str, user: str, value: object, mute: Callable[[int], None]) -> object:
        if value is None or isinstance(value, Close):
            return value
        # As things are now: the request may have waited for longer than its client would have to.
        waits = [Throttle(self._quotas.record(REQUEST_TIME, client_id, 0, user), REQUEST_TIME)]
        if route.key in (FETCH, SHARE_FETCH):
            size = sum(map(len, value)) if isinstance(value, list) else 0
            at_rest = self._quotas.at_rest(CONSUMED, client_id, user)
            consumed = Throttle(self._quotas.record(CONSUMED, client_id, size, user), CONSUMED)
            waits.append(consumed)
            # What is too much by itself always would be: who had nothing before gets it, and waits afterwards.
            if route.key == FETCH and (waits[0].ms or (consumed.ms and not at_rest)):
                self._quotas.take_back(CONSUMED, client_id, size, user)
                value = encode_fetch([], route.version, False)
        elif not route.raw:
            waits.append(Throttle(getattr(value, "throttle_time_ms", 0) or 0, MUTATIONS))
        longest = max(waits)
        if not longest.ms:
            return value
        self._told(longest, mute)
        return _say(route, value, longest.ms)

    def _told(self, longest: Throttle, mute: Callable[[int], None]) -> None:
        self._quotas.count(longest)
        mute(longest.ms)


def _after(result: object, change: Callable[[object], object]) -> object:
    """What `change` makes of an answer, which may be still to come."""
    if not isinstance(result, Deferred):
        return change(result)
    if result.done:
        return change(result.value)

    def changed(value: object) -> object:
        try:
            return change(value)
        except Exception:
            # A programmer's error. It must not reach who completes this: others are still to be answered.
            log.exception("event=throttling_failed")
            return Close("counting an answer failed")

    result.change(changed)
    return result


def _say(route: Route, value: object, wait_ms: int) -> object:
    """The answer, with the time to wait in it, where it has a place for that."""
    if value is None or isinstance(value, Close):
        return value
    if not route.raw:
        if hasattr(value, "throttle_time_ms"):
            value.throttle_time_ms = wait_ms
        return value
    said = wire.INT32.pack(wait_ms)
    if route.key == PRODUCE:
        assert isinstance(value, bytes)
        return value[:-5] + said + value[-1:] if route.version >= _FLEXIBLE_PRODUCE else value[:-4] + said
    if route.key in (FETCH, SHARE_FETCH):
        assert isinstance(value, list)
        value[0][:4] = said
    elif route.key == DESCRIBE_TOPIC_PARTITIONS or (route.key == METADATA and route.version >= _FIRST_IN_METADATA):
        assert isinstance(value, bytes)
        return said + value[4:]
    return value
