"""Cancelling messages that wait for a time, by their UNIQ_KEY (B30; RocketMQ: TIMER_DEL_UNIQKEY, recallMessage).

A cancel is a control record: durable before it is acknowledged, and true from then on. Until its messages are found
with the key index, the delivery of waiting messages asks here (`complete_among`). Once they are completed the cancel is
removed; so there are as many as have just come, however many messages wait.

It means messages that were sent before it, to the same topic. One that waits for a decision, as a half message does, or
to be consumed again, is not meant.
"""

from __future__ import annotations

import contextlib
from bisect import bisect_right
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, Protocol

from halfmoon.core.features import Feature
from halfmoon.core.keys import OverlappingError, possible_unique_keys, unique_key
from halfmoon.core.records import record_codec
from halfmoon.core.records.batches import batch_body, parse_header
from halfmoon.core.storage.frame import Kind
from halfmoon.core.storage.frame_reading import WholeFrame
from halfmoon.errors import BrokerError, Fault
from halfmoon.schema import control
from halfmoon.services.delay import metrics

if TYPE_CHECKING:
    from halfmoon.core.append import Appender
    from halfmoon.core.catalog.catalog import Catalog
    from halfmoon.core.catalog.topics import Partition, Topic
    from halfmoon.core.clock import Clock
    from halfmoon.core.partition_reader import PartitionReader
    from halfmoon.core.relay import Load, Relays
    from halfmoon.core.storage.storage import WriteSide
    from halfmoon.services.delay.state import CancelsState

AT_ONCE = 2_000
"""Cancels that are looked up together."""
COMPLETED = 1_000
"""Messages that are completed between two pauses."""
FEW_KEYS = 20
"""So few are each searched for in a batch's bytes; of more, all keys there are looked at."""
MOST = 100_000
"""More are refused until some are done: 10 MB."""
AGAIN_MS = 50
"""The key index is asked again after so long, if it is behind."""

Cancel = tuple[int, bytes, int]
"""Topic number, UNIQ_KEY, log position below which it counts."""
Place = tuple[int, int, int]
"""Topic number, partition, offset."""


class KeyLookup(Protocol):
    """The key index, as far as it is asked here."""

    def covers(self, position: int) -> bool:
        """Whether all frames below a log position are in the index."""
        ...

    def find_key(self, topic_number: int, key: bytes) -> Callable[[], list[int]]:
        """A function for a thread that gives the log positions of frames that may have a message to this topic with
        this key."""
        ...


class Waiting(Protocol):
    """Messages that wait, as far as they are asked about here."""

    @property
    def is_gathering(self) -> bool:
        """Messages have been read that are about to be appended: nobody else may complete what is due."""
        ...

    @property
    def decided_topics(self) -> Collection[str]:
        """Internal topics whose messages wait for something else than a time."""
        ...


class Cancelling:
    """A relay task (core/relay.py): cancels whose messages are still to be found."""

    def __init__(
        self,
        log: WriteSide,
        reader: PartitionReader,
        catalog: Catalog,
        appender: Appender,
        relays: Relays,
        clock: Clock,
        state: CancelsState,
        keys: KeyLookup,
        waiting: Waiting,
    ) -> None:
        self._log = log
        self._reader = reader
        self._catalog = catalog
        self._appender = appender
        self._relays = relays
        self._clock = clock
        self._state = state
        self._keys = keys
        self._waiting = waiting
        self.asked = 0
        """How often something was cancelled."""
        self.completed = 0
        """Messages that were not delivered."""

    def __str__(self) -> str:
        return "cancelling"

    def feature(self) -> Feature:
        return Feature(
            "delay",
            start=lambda: self._relays.add(self, self),
            families=metrics.FAMILIES,
            read_metrics=partial(metrics.read, self),
        )

    @property
    def any_open(self) -> bool:
        """Whether there is any of which the messages are not found yet."""
        return bool(self._state.cancels)

    def cancelled(self, topic: Topic, keys: Sequence[bytes]) -> control.Cancelled:
        """The record by which these messages are not delivered from now on; then call `was_asked`. Raises
        BrokerError."""
        if sum(map(len, self._state.cancels.values())) >= MOST:
            raise BrokerError(Fault.REQUEST_TIMED_OUT, "too many messages are being cancelled; try again later")
        return control.Cancelled(topic.number, list(keys), self._log.end)

    def was_asked(self) -> None:
        """Such a record was appended."""
        self.asked += 1
        self._relays.wake(self)

    def complete_among(self, target: Topic, waiting: Partition, base: int, batch: memoryview) -> None:
        """Complete those messages of a batch at offset `base` of `waiting`, which is to go to `target`, that are
        cancelled. Raises BrokerError."""
        keys = self._state.cancels.get(target.number)
        if keys is None or waiting.topic.name in self._waiting.decided_topics:
            return
        ((position, _),) = waiting.queue.places(base, 1, min_one=True)
        self._complete(
            (waiting.topic.number, waiting.index, base + offset_delta)
            for offset_delta, key in _records_with(batch, keys)
            if position < keys[key]
        )

    def _complete(self, places: Iterable[Place]) -> None:
        """Complete those of them that wait. Raises BrokerError."""
        waiting = []
        for number, index, offset in places:
            partition = self._catalog.partition(number, index)
            if partition is not None and partition.pending is not None and offset in partition.pending:
                waiting.append((number, index, offset))
        if waiting:
            self._appender.append_control(control.Settled(waiting))
            self.completed += len(waiting)

    # -- finding them ------------------------------------------------------------------------------------------------

    def run(self) -> Generator[Load | None, Any, None]:
        state = self._state
        while state.cancels:
            every = ((n, key, at) for n, keys in state.cancels.items() for key, at in keys.items())
            cancels = list(islice(every, AT_ONCE))
            if not self._keys.covers(max(at for _, _, at in cancels)):
                self._relays.wake_at(self, self._clock.mono_ms() + AGAIN_MS)
                return
            places, unread, problem = yield self._look_up(cancels)
            for at in range(0, len(places), COMPLETED):
                yield None
                while self._waiting.is_gathering:  # it has read messages that it is about to append
                    yield None
                self._complete(places[at : at + COMPLETED])
            now = state.cancels
            done = [
                (number, key)
                for number, key, at in cancels
                if (number, key) not in unread and now.get(number, {}).get(key) == at
            ]
            if done:
                self._appender.append_control(control.CancelsDone(done))
            if problem is not None:
                raise problem  # these are looked up again after a pause
            yield None

    def _look_up(self, cancels: Sequence[Cancel]) -> Load:
        """A function for a thread that gives the places of the messages that may wait; topics and keys of which some
        cannot be read now, and why."""
        searches = [(self._keys.find_key(number, key), number, key, at) for number, key, at in cancels]
        frames = self._reader.frames()
        topics = (self._catalog.by_name.get(name) for name in self._waiting.decided_topics)
        reserved = {topic.number for topic in topics if topic is not None}

        def look_up() -> tuple[list[Place], set[tuple[int, bytes]], OSError | None]:
            wanted: dict[int, set[tuple[int, bytes]]] = {}
            """Frame's position → topics and keys that it may have messages of."""
            for search, number, key, at in searches:
                for position in search():
                    if position < at:
                        wanted.setdefault(position, set()).add((number, key))
            found: list[Place] = []
            unread: set[tuple[int, bytes]] = set()
            problem: OSError | None = None
            for position, keys in wanted.items():
                try:
                    whole = frames.read(position)
                except OSError as error:
                    problem = error
                    unread |= keys
                    continue
                if whole is not None and whole.frame.topic_number not in reserved:
                    found += _waiting(whole, keys)
            return found, unread, problem

        return look_up


def _waiting(whole: WholeFrame, keys: Iterable[tuple[int, bytes]]) -> Iterator[Place]:
    """The messages of a frame, if they wait, that go to one of these topics and have the key beside it."""
    frame, target = whole.frame, whole.target
    if frame.kind != Kind.BATCH or target is None:
        return
    wanted = {key for topic_number, key in keys if topic_number == target.topic_number}
    for offset_delta, _ in _records_with(whole.payload, wanted):
        yield frame.topic_number, frame.partition, frame.base_offset + offset_delta


def _records_with(batch: memoryview, keys: Collection[bytes]) -> Iterator[tuple[int, bytes]]:
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
