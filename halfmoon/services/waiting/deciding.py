"""Relays: who decides what becomes of the messages that wait in one internal topic (hook `halfmoon_relays`).

A relay is told of each message that begins to wait, asked when it is due, and its decision is carried out: deliver,
complete, or reschedule. A message whose relay or append fails is asked about again later, and holds up no other.
"""

from __future__ import annotations

import logging
from collections.abc import Generator, Mapping
from typing import TYPE_CHECKING, Any

from halfmoon.core.records.batches import build_batch, parse_header
from halfmoon.core.relay import tried
from halfmoon.errors import BrokerError, Fault, NotHereYetError
from halfmoon.schema import control
from halfmoon.schema.provenance import Provenance, SourceRun
from halfmoon.services.waiting.messages import place_of, still_waiting
from halfmoon.services.waiting.types import Complete, Reschedule

if TYPE_CHECKING:
    from halfmoon.core.append import Appender
    from halfmoon.core.catalog.catalog import Catalog
    from halfmoon.core.catalog.topics import Partition
    from halfmoon.core.records.record_codec import Headers
    from halfmoon.core.relay import Load
    from halfmoon.core.storage.storage import Place
    from halfmoon.core.topic_administration import TopicAdministration
    from halfmoon.schema.provenance import Origin
    from halfmoon.services.common.gathering import Outgoing
    from halfmoon.services.waiting.delivering import Delivering
    from halfmoon.services.waiting.messages import WaitingFrame, WaitingMessages
    from halfmoon.services.waiting.types import Relay, Scheduled

RETRY_MS = 10_000
"""A message that could not be dealt with is tried again after so long."""
DECIDED = 50
"""Messages that relays are asked about, or told of, between two pauses."""


class Deciding:
    def __init__(
        self,
        appender: Appender,
        administration: TopicAdministration,
        catalog: Catalog,
        messages: WaitingMessages,
        delivering: Delivering,
        logger: logging.Logger,
    ) -> None:
        self._appender = appender
        self._administration = administration
        self._catalog = catalog
        self._messages = messages
        self._delivering = delivering
        self._logger = logger
        self.relays: Mapping[str, Relay] = {}
        """Waiting topic → who decides what becomes of its messages; those of other topics are delivered."""

    def relay_of(self, partition: Partition) -> Relay | None:
        return self.relays.get(partition.topic.name)

    def tell(
        self, partition: Partition, begin: int, end: int, known: tuple[int, int], *, at_once: bool
    ) -> Generator[Load | None, Any, None]:
        """Tell the relay of what waits in [begin, end) of its queue, but not of the `known` offsets [from, to). Raises
        OSError. `at_once`: it yields nothing, but raises NotHereYetError where these frames are not here."""
        relay = self.relay_of(partition)
        if relay is None or relay.begin is None or partition.pending is None:
            return
        places = _places(partition, begin, end, known)
        messages = self._messages
        frames = self._frames_now(places) if at_once else (yield from messages.frames(places))
        for frame in frames:
            for nth, (offset, record) in enumerate(still_waiting(partition, frame.header.base_offset, frame.batch)):
                if nth % DECIDED == DECIDED - 1 and not at_once:
                    yield None
                self._begin(relay, messages.message(partition, offset, record, frame.origin))
        messages.brought.forget(places)

    def tell_of(self, partition: Partition, base: int, batch: memoryview, origin: Origin) -> None:
        """Tell the relay of what waits of a batch that was appended at offset `base`."""
        relay = self.relay_of(partition)
        if relay is not None and relay.begin is not None:
            for offset, record in still_waiting(partition, base, batch):
                self._begin(relay, self._messages.message(partition, offset, record, origin))

    def _frames_now(self, places: list[Place]) -> list[WaitingFrame]:
        try:
            return [self._messages.frame_now(place) for place in places]
        except NotHereYetError:
            raise NotHereYetError(self._messages.brought.load(places)) from None

    def _begin(self, relay: Relay, message: Scheduled) -> None:
        if relay.begin is None:
            return
        try:
            relay.begin(message)
        except Exception:
            self._logger.exception("event=relay_failed relay=%s topic=%s", relay.name, message.topic)

    def decide(
        self, relay: Relay, source: Partition, base: int, batch: memoryview, origin: Origin
    ) -> Generator[Load | None, Any, int | None]:
        """Ask about each message of a frame, and do as the relay says; when to ask again (Unix ms), if one waits on."""
        if parse_header(batch).base_offset != base:
            return None
        look_again_ms: int | None = None
        for at, (offset, record) in enumerate(still_waiting(source, base, batch)):
            due_ms = yield from self._carry_out(relay, source, self._messages.message(source, offset, record, origin))
            if due_ms is not None:
                look_again_ms = min(due_ms, look_again_ms or due_ms)
            if at % DECIDED == DECIDED - 1:
                yield None
        return look_again_ms

    def _carry_out(
        self, relay: Relay, source: Partition, message: Scheduled
    ) -> Generator[Load | None, Any, int | None]:
        """Ask about a message, and do as the relay says; when to ask again, if it waits on."""
        try:
            decision = relay.decide(message)
        except Exception:
            self._logger.exception("event=relay_failed relay=%s topic=%s", relay.name, message.topic)
            return message.now_ms + RETRY_MS
        try:
            if isinstance(decision, Reschedule):
                self._reschedule(source, message, decision)
                return decision.due_ms
            if isinstance(decision, Complete):
                self._complete(source, message, decision)
            else:
                for out in (yield from self._released(source, message.offset)):
                    self._delivering.append(out)
        except BrokerError as error:
            self._begin(relay, message)  # it has counted on what it decided
            self._delivering.failed(error, source, message.offset)
            return message.now_ms + RETRY_MS
        return None

    def _released(self, source: Partition, offset: int) -> Generator[Load | None, Any, list[Outgoing]]:
        """As of `Delivering.release`; empty where it was completed meanwhile. Raises BrokerError, also where it cannot
        be read now."""
        while source.pending is not None and offset in source.pending:
            try:
                return self._delivering.release([(source, offset)])
            except NotHereYetError as error:
                load = error.load
            failure = yield tried(load)
            if isinstance(failure, OSError):
                raise BrokerError(Fault.REQUEST_TIMED_OUT, f"it cannot be read now: {failure}")
        return []

    def _reschedule(self, source: Partition, message: Scheduled, decision: Reschedule) -> None:
        run = SourceRun(source.topic.number, source.index, message.offset, message.attempts + 1)
        if decision.topic is not None:
            batch = _copy(message, decision.headers)
            self._appender.append_relayed(self._administration.first_partition(decision.topic), batch, attempts=[run])
        else:
            self._catalog.prove(Provenance(attempts=(run,)))

    def _complete(self, source: Partition, message: Scheduled, decision: Complete) -> None:
        run = SourceRun(source.topic.number, source.index, message.offset, 1)
        if decision.topic is not None:
            batch = _copy(message, decision.headers)
            self._appender.append_relayed(self._administration.first_partition(decision.topic), batch, sources=[run])
        else:
            self._appender.append_control(control.Settled([(run.topic_number, run.partition, run.first_offset)]))


def _places(partition: Partition, begin: int, end: int, known: tuple[int, int]) -> list[Place]:
    """Where the frames stand that hold what waits in [begin, end), but only `known` offsets; those that are lost to
    corruption are left out."""
    pending, queue = partition.pending, partition.queue
    assert pending is not None
    known_from, known_to = known
    places: list[Place] = []
    after = begin
    while (at := pending.first(after)) is not None and at < end:
        if known_from <= at < known_to:
            after = known_to
            continue
        place = place_of(partition, at)
        rows = queue.rows_upto(at, at + 1, 0)
        if place is None or not rows:
            after = at + 1
            continue
        places.append(place)
        after = rows[0][0] + rows[0][1]
    return places


def _copy(message: Scheduled, headers: Headers) -> bytearray:
    """A batch of the message alone, with more headers."""
    record = message.record
    return bytearray(build_batch([(record.key, record.value, message.now_ms, (*record.headers, *headers))]))
