"""Relays: who decides what becomes of the messages that wait in one internal topic (hook `halfmoon_relays`).

A relay is told of each message that begins to wait, asked when it is due, and its decision is carried out: deliver,
complete, or reschedule. A message whose relay or append fails is asked about again later, and holds up no other.
"""

from __future__ import annotations

import logging
from collections.abc import Generator, Mapping
from typing import TYPE_CHECKING, Any

from halfmoon.core.records.batches import build_batch, parse_header
from halfmoon.errors import BrokerError
from halfmoon.schema import control
from halfmoon.schema.provenance import Provenance, SourceRun
from halfmoon.services.waiting.messages import still_waiting
from halfmoon.services.waiting.types import Complete, Reschedule

if TYPE_CHECKING:
    from halfmoon.core.append import Appender
    from halfmoon.core.catalog.catalog import Catalog
    from halfmoon.core.catalog.topics import Partition
    from halfmoon.core.records.record_codec import Headers
    from halfmoon.core.relay import Load
    from halfmoon.core.topic_administration import TopicAdministration
    from halfmoon.schema.provenance import Origin
    from halfmoon.services.waiting.delivering import Delivering
    from halfmoon.services.waiting.messages import WaitingMessages
    from halfmoon.services.waiting.types import Relay, Scheduled

RETRY_MS = 10_000
"""A message that could not be dealt with is tried again after so long."""
DECIDED = 50
"""Messages that relays are asked about between two pauses."""


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

    def tell(self, partition: Partition, begin: int, end: int, known: tuple[int, int]) -> None:
        """Tell the relay of what waits in [begin, end) of its queue, but not of the `known` offsets [from, to)."""
        relay = self.relay_of(partition)
        if relay is None or relay.begin is None or partition.pending is None:
            return
        pending = partition.pending
        known_from, known_to = known
        after = begin
        while (at := pending.first(after)) is not None and at < end:
            if known_from <= at < known_to:
                after = known_to
                continue
            try:
                origin, header, batch = self._messages.frame_with(partition, at)
            except LookupError:
                after = at + 1
                continue
            for offset, record in still_waiting(partition, header.base_offset, batch):
                relay.begin(self._messages.message(partition, offset, record, origin))
            after = header.base_offset + header.last_offset_delta + 1

    def decide(
        self, relay: Relay, source: Partition, base: int, batch: memoryview, origin: Origin
    ) -> Generator[Load | None, Any, int | None]:
        """Ask about each message of a frame, and do as the relay says; when to ask again (Unix ms), if one waits on."""
        if parse_header(batch).base_offset != base:
            return None
        look_again_ms: int | None = None
        for at, (offset, record) in enumerate(still_waiting(source, base, batch)):
            due_ms = self._carry_out(relay, source, self._messages.message(source, offset, record, origin))
            if due_ms is not None:
                look_again_ms = min(due_ms, look_again_ms or due_ms)
            if at % DECIDED == DECIDED - 1:
                yield None
        return look_again_ms

    def _carry_out(self, relay: Relay, source: Partition, message: Scheduled) -> int | None:
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
                for out in self._delivering.release([(source, message.offset)]):
                    self._delivering.append(out, message.now_ms)
        except BrokerError as error:
            if relay.begin is not None:  # it has counted on what it decided
                relay.begin(message)
            self._delivering.failed(error, source, message.offset)
            return message.now_ms + RETRY_MS
        return None

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


def _copy(message: Scheduled, headers: Headers) -> bytearray:
    """A batch of the message alone, with more headers."""
    record = message.record
    return bytearray(build_batch([(record.key, record.value, message.now_ms, (*record.headers, *headers))]))
