"""Making and appending the batches that waiting messages become when they are delivered, or when nobody can get them.

Each is appended with the provenance of what it was, which completes the waiting messages: so each is delivered once.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from halfmoon.core.append import Appender
from halfmoon.core.catalog.catalog import Catalog
from halfmoon.core.catalog.topics import Partition
from halfmoon.core.records.batches import build_batch, parse_header, set_log_append_time
from halfmoon.core.steps import Slices
from halfmoon.core.storage.storage import Place
from halfmoon.core.topic_administration import TopicAdministration
from halfmoon.core.turn import Turn
from halfmoon.errors import BrokerError, Fault, NotHereYetError
from halfmoon.schema.provenance import Origin, SourceRun
from halfmoon.services.common.gathering import MERGE_RECORDS, Outgoing
from halfmoon.services.waiting.due_clock import DueClock
from halfmoon.services.waiting.messages import SingleRecords, WaitingMessages, place_of, still_waiting, with_origin

UNDELIVERABLE = "halfmoon.undeliverable"
"""Dead letters that belong to no group: messages whose topic was gone when they were due, or that had expired."""
RELEASED = 50
"""Messages that are released between two pauses."""
RELEASED_BYTES = 64 << 20
"""Most that is released at once."""


class Delivering:
    def __init__(
        self,
        appender: Appender,
        administration: TopicAdministration,
        catalog: Catalog,
        messages: WaitingMessages,
        clock: DueClock,
        turn: Turn,
        logger: logging.Logger,
    ) -> None:
        self._clock = clock
        self._appender = appender
        self._administration = administration
        self._catalog = catalog
        self.messages = messages
        self._turn = turn
        self._logger = logger
        self.delivered = 0
        self.lost_targets = 0
        """Messages whose topic was gone when they were due."""

    def append(self, out: Outgoing) -> None:
        """With the time of the delivery, by the broker's clock, as the batch says then. The clock is read here: what it
        said before the messages were looked for may be earlier than they were due."""
        if out.is_empty:
            return
        batch = out.batch()
        header = parse_header(batch)
        set_log_append_time(memoryview(batch), self._clock.now_ms())
        self._appender.append_relayed(out.target, batch, sources=out.sources())
        self.delivered += header.record_count
        out.begin()

    def release(self, places: Sequence[tuple[Partition, int]]) -> list[Outgoing]:
        """The batches that waiting messages become when they are delivered, by where they go, in the order they wait
        in; nothing is appended. What is lost to corruption is left out.

        Raises BrokerError(MESSAGE_TOO_LARGE) where they are too much to be held in memory together, and NotHereYetError
        where some are not here.
        """
        releasing = _Releasing(self)
        for source, offset in _in_order(places):
            releasing.add(source, offset)
        return releasing.end()

    def release_in_slices(self, places: Sequence[tuple[Partition, int]]) -> Slices[list[Outgoing]]:
        """The same, with pauses."""
        releasing = _Releasing(self)
        for nth, (source, offset) in enumerate(_in_order(places), 1):
            if nth % RELEASED == 0:
                yield None
            releasing.add(source, offset)
        return releasing.end()

    def place_of(self, source: Partition, offset: int) -> Place | None:
        """Of its frame, also where that is not visible yet: it may have been moved (reclaim.py) a moment ago."""
        if offset < source.queue.end_offset:
            return place_of(source, offset)
        batch = self._turn.unseen_place(source, offset)
        return None if batch is None else with_origin(batch)

    def target_of(self, origin: Origin) -> Partition:
        """Where messages go that were sent there; that may be gone."""
        target = self._catalog.partition(origin.topic_number, origin.partition)
        if target is None:
            target = self._administration.first_partition(UNDELIVERABLE)
            self.lost_targets += 1
        return target

    def not_found(self, source: Partition, offset: int) -> None:
        self._logger.error("event=delivery_failed from=%r offset=%d error=%s", source, offset, "not found")

    def write_dead_letters(self, source: Partition, base: int, batch: memoryview, origin: Origin) -> None:
        """The topic that these messages were sent to is gone: they become dead letters, which say why."""
        name = self._catalog.name_of(origin.topic_number)
        why = (
            ("halfmoon.reason", f"topic '{name}' was deleted before the message was due".encode()),
            ("halfmoon.original-topic", name.encode()),
            ("halfmoon.original-partition", str(origin.partition).encode()),
        )
        left = list(still_waiting(source, base, batch))
        now_ms = self._clock.now_ms()
        for at in range(0, len(left), MERGE_RECORDS):
            part = left[at : at + MERGE_RECORDS]
            made = build_batch((record.key, record.value, now_ms, (*record.headers, *why)) for _, record in part)
            runs = [SourceRun(source.topic.number, source.index, offset, 1) for offset, _ in part]
            target = self._administration.first_partition(UNDELIVERABLE)
            self._appender.append_relayed(target, bytearray(made), sources=runs)
            self.lost_targets += len(part)

    def unreadable(self, error: OSError, source: Partition, offset: int) -> None:
        """It is tried again later."""
        self._logger.error("event=delivery_failed from=%r offset=%d error=%s", source, offset, error)

    def failed(self, error: BrokerError, source: Partition, offset: int) -> None:
        """What stops one message stops no other. Raises the error again where it has stopped all of them."""
        if error.fault is Fault.KAFKA_STORAGE_ERROR:
            raise error
        self._logger.error("event=delivery_failed from=%r offset=%d error=%s", source, offset, error)


class _Releasing:
    """Messages that are released together, in the order of their places."""

    def __init__(self, delivering: Delivering) -> None:
        self._delivering = delivering
        self._messages = delivering.messages
        self._outgoing: dict[Partition, Outgoing] = {}
        self._full: list[Outgoing] = []
        self._size = 0
        self._frame: SingleRecords | None = None
        self._used: list[Place] = []
        self._missing: dict[Place, None] = {}

    def add(self, source: Partition, offset: int) -> None:
        """Raises BrokerError(MESSAGE_TOO_LARGE)."""
        frame = self._frame
        if frame is None or not frame.holds(source, offset):
            place = self._delivering.place_of(source, offset)
            if place is None:
                self._delivering.not_found(source, offset)
                return
            try:
                self._frame = frame = SingleRecords(source, self._messages.frame_now(place))
            except NotHereYetError:
                self._missing[place] = None
                return
            self._used.append(place)
        target = self._delivering.target_of(frame.origin)
        out = self._outgoing.get(target)
        if out is not None and out.is_full:
            self._full.append(out)
            out = None
        if out is None:
            out = self._outgoing[target] = Outgoing(target)
        record = frame.extent(offset)
        size = record.end - record.start
        self._size += size
        if self._size > RELEASED_BYTES and self._size > size:
            raise BrokerError(
                Fault.MESSAGE_TOO_LARGE,
                f"more than {RELEASED_BYTES >> 20} MiB of messages would be delivered at once",
            )
        out.take(source, offset, frame.body, record)

    def end(self) -> list[Outgoing]:
        """Raises NotHereYetError."""
        brought = self._messages.brought
        if self._missing:
            raise NotHereYetError(brought.load(list(self._missing)))
        brought.forget(self._used)
        return [*self._full, *self._outgoing.values()]


def _in_order(places: Sequence[tuple[Partition, int]]) -> Sequence[tuple[Partition, int]]:
    if len(places) == 1:
        return places
    return sorted(places, key=lambda each: (each[0].topic.number, each[0].index, each[1]))
