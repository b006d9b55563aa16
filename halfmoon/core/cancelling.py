"""Cancelling messages that wait for a time, by their UNIQ_KEY (B30; RocketMQ: TIMER_DEL_UNIQKEY, recallMessage).

A cancel is a control record: durable before it is acknowledged, and true from then on. Until its messages are found
with the key index, whoever delivers asks here (`settle_among`). Once they are settled the cancel is forgotten; so there
are as many as have just come, however many messages wait.

It means messages that were sent before it, to the same topic. One that waits for a decision, as a half message does, or
to be consumed again, is not meant.
"""

from __future__ import annotations

import contextlib
from bisect import bisect_right
from collections.abc import Collection, Generator, Iterable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

from halfmoon.core import record_codec
from halfmoon.core.errors import BrokerError, Fault
from halfmoon.core.frame import Kind
from halfmoon.core.frame_reading import FrameReader, WholeFrame
from halfmoon.core.keys import OverlappingError, possible_unique_keys, unique_key
from halfmoon.core.records import batch_body, parse_header
from halfmoon.schema import control

if TYPE_CHECKING:
    from halfmoon.core.broker import Broker
    from halfmoon.core.catalog.topics import Partition, Topic
    from halfmoon.core.relay import Load

AT_ONCE = 2_000
"""Cancels that are looked up together."""
SETTLED = 1_000
"""Messages that are settled between two pauses."""
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


class Cancelling:
    """A mover (core/relay.py): cancels whose messages are still to be found."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self.asked = 0
        """How often something was cancelled."""
        self.settled = 0
        """Messages that were not delivered."""

    def __str__(self) -> str:
        return "cancelling"

    def start(self) -> None:
        self._broker.relays.add(self, self)

    def cancelled(self, topic: Topic, keys: Sequence[bytes]) -> control.Cancelled:
        """The record by which these messages are not delivered from now on; then call `asked_for`. Raises
        BrokerError."""
        broker = self._broker
        if sum(map(len, broker.state.cancels.cancels.values())) >= MOST:
            raise BrokerError(Fault.REQUEST_TIMED_OUT, "too many messages are being cancelled; try again later")
        return control.Cancelled(topic.number, list(keys), broker.log.end)

    def asked_for(self) -> None:
        """Such a record was appended."""
        self.asked += 1
        self._broker.relays.wake(self)

    def settle_among(self, target: Topic, waiting: Partition, base: int, batch: memoryview) -> None:
        """Those messages of a batch, which waits to go to `target`, that are not to be delivered are done with. Raises
        BrokerError."""
        keys = self._broker.state.cancels.cancels.get(target.number)
        if keys is None or waiting.topic.name in self._broker.deliveries.relays:
            return
        ((position, _),) = waiting.queue.places(base, 1, min_one=True)
        self._settle(
            (waiting.topic.number, waiting.index, base + offset_delta)
            for offset_delta, key in _records_with(batch, keys)
            if position < keys[key]
        )

    def _settle(self, places: Iterable[Place]) -> None:
        """Those of them that wait are done with. Raises BrokerError."""
        catalog = self._broker.catalog
        waiting = []
        for number, index, offset in places:
            partition = catalog.partition(number, index)
            if partition is not None and partition.pending is not None and offset in partition.pending:
                waiting.append((number, index, offset))
        if waiting:
            self._broker.append_control(control.Settled(waiting))
            self.settled += len(waiting)

    # -- finding them ------------------------------------------------------------------------------------------------

    def run(self) -> Generator[Load | None, Any, None]:
        broker = self._broker
        while broker.state.cancels.cancels:
            every = ((n, key, at) for n, keys in broker.state.cancels.cancels.items() for key, at in keys.items())
            cancels = list(islice(every, AT_ONCE))
            if not broker.key_index.covers(max(at for _, _, at in cancels)):
                broker.relays.wake_at(self, broker.clock.mono_ms() + AGAIN_MS)
                return
            places = yield self._look_up(cancels)
            for at in range(0, len(places), SETTLED):
                yield None
                while broker.deliveries.is_gathering:  # it has read messages that it is about to append
                    yield None
                self._settle(places[at : at + SETTLED])
            now = broker.state.cancels.cancels
            done = [(number, key) for number, key, at in cancels if now.get(number, {}).get(key) == at]
            broker.append_control(control.CancelsDone(done))
            yield None

    def _look_up(self, cancels: Sequence[Cancel]) -> Load:
        """A function for a thread that gives the places of the messages that may wait."""
        broker = self._broker
        searches = [(broker.key_index.find_key(number, key), number, key, at) for number, key, at in cancels]
        frames = FrameReader(broker.log)
        topics = (broker.topic(name) for name in broker.deliveries.relays)
        reserved = {topic.number for topic in topics if topic is not None}

        def look_up() -> list[Place]:
            wanted: dict[int, set[tuple[int, bytes]]] = {}
            """Frame's position → topics and keys that it may have messages of."""
            for search, number, key, at in searches:
                for position in search():
                    if position < at:
                        wanted.setdefault(position, set()).add((number, key))
            found: list[Place] = []
            for position, keys in wanted.items():
                whole = frames.read(position)
                if whole is not None and whole.frame.topic_number not in reserved:
                    found += _waiting(whole, keys)
            return found

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
