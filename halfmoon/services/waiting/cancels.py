"""Cancels of messages that wait: what everybody obeys who moves such messages (B30).

A cancel is a control record: durable before it is acknowledged, and true from then on, whether the feature that finds
its messages is on or off. It is open until that feature has found them. Meanwhile whoever is about to deliver a message
or to move it asks here whether it is cancelled.

It means messages that were sent before it, to the same topic. One that waits for a decision, as a half message does, or
to be consumed again, is not meant.
"""

from __future__ import annotations

import contextlib
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Protocol

from halfmoon.core.append import Appender
from halfmoon.core.catalog.catalog import Catalog
from halfmoon.core.catalog.topics import Partition, Topic
from halfmoon.core.records import record_codec
from halfmoon.core.records.batches import batch_body, parse_header
from halfmoon.core.storage.storage import WriteSide
from halfmoon.errors import BrokerError, Fault
from halfmoon.schema import control
from halfmoon.services.common.keys import OverlappingError, possible_unique_keys, unique_key
from halfmoon.services.waiting.types import Relay

FEW_KEYS = 20
"""So few are each searched for in a batch's bytes; of more, all keys there are looked at."""
MOST = 100_000
"""More open cancels are refused until some are done: 10 MB."""

Place = tuple[int, int, int]
"""Topic number, partition, offset."""


class OpenCancels(Protocol):
    """What the log says: the section of the catalog."""

    cancels: dict[int, dict[bytes, int]]
    """Topic number → UNIQ_KEY of messages that are not to be delivered, and below which log position they were sent."""


class Cancels:
    def __init__(self, log: WriteSide, catalog: Catalog, appender: Appender, state: OpenCancels) -> None:
        self._log = log
        self._catalog = catalog
        self._appender = appender
        self._state = state
        self.relays: Mapping[str, Relay] = {}
        """Waiting topic → who decides about its messages; a cancel does not mean these."""
        self.find: Callable[[], None] | None = None
        """Has the messages of cancels found that have come; None where the feature is off, and nothing can be
        cancelled."""
        self.asked = 0
        """How often something was cancelled."""
        self.completed = 0
        """Messages that were not delivered."""

    @property
    def any_open(self) -> bool:
        """Whether there is any of which the messages are not found yet."""
        return bool(self._state.cancels)

    def any_open_for(self, topic_number: int) -> bool:
        return topic_number in self._state.cancels

    def cancelled(self, topic: Topic, keys: Sequence[bytes]) -> control.Cancelled:
        """The record by which messages to `topic` with these UNIQ_KEYs are not delivered from now on; then call
        `was_asked`. Raises BrokerError."""
        if self.find is None:
            raise BrokerError(Fault.INVALID_RECORD, "messages cannot be cancelled: the feature that does it is off")
        if sum(map(len, self._state.cancels.values())) >= MOST:
            raise BrokerError(Fault.REQUEST_TIMED_OUT, "too many messages are being cancelled; try again later")
        return control.Cancelled(topic.number, list(keys), self._log.end)

    def was_asked(self) -> None:
        """Such a record was appended."""
        self.asked += 1
        if self.find is not None:
            self.find()

    def complete_among(self, target: Topic, waiting: Partition, base: int, batch: memoryview) -> None:
        """Complete those messages of a batch at offset `base` of `waiting`, which is to go to `target`, that are
        cancelled. Raises BrokerError."""
        keys = self._state.cancels.get(target.number)
        if keys is None or waiting.topic.name in self.relays:
            return
        ((position, _),) = waiting.queue.places(base, 1, min_one=True)
        self.complete(
            (waiting.topic.number, waiting.index, base + offset_delta)
            for offset_delta, key in records_with(batch, keys)
            if position < keys[key]
        )

    def complete(self, places: Iterable[Place]) -> None:
        """Complete those of these messages that wait. Raises BrokerError."""
        waiting = []
        for number, index, offset in places:
            partition = self._catalog.partition(number, index)
            if partition is not None and partition.pending is not None and offset in partition.pending:
                waiting.append((number, index, offset))
        if waiting:
            self._appender.append_control(control.Settled(waiting))
            self.completed += len(waiting)


def records_with(batch: memoryview, keys: Collection[bytes]) -> Iterator[tuple[int, bytes]]:
    """The records of a batch that have one of these UNIQ_KEYs: offset delta and key. Only those are read that may have
    one: there may be thousands, of which one is cancelled."""
    body = bytes(batch_body(batch))
    places = list(_places_of(body, keys))
    if not places:
        return
    header = parse_header(batch)
    bounds = record_codec.walk(body, header.record_count)
    for index in sorted({bisect_right(bounds, at) - 1 for at in places}):
        record = record_codec.read_one(body, bounds[index], index, header.base_timestamp, None)
        key = unique_key(record)
        if key is not None and key in keys:
            yield record.offset_delta, key


def _places_of(body: bytes, keys: Collection[bytes]) -> Iterator[int]:
    """Where in a batch's body one of the keys may stand."""
    if len(keys) > FEW_KEYS:
        with contextlib.suppress(OverlappingError):
            yield from [at for at, key in possible_unique_keys(body) if key in keys]
            return
    for key in keys:
        at = body.find(key)
        while at >= 0:
            yield at
            at = body.find(key, at + len(key))
