"""Waiting messages as they stand in the log: reading their frames, and telling relays of them.

A frame of waiting messages has its origin (where they were sent) right before its batch, so both are read together.
Which of its messages still wait, the partition's pending set says. Nothing here decides anything or appends.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from halfmoon.core.records import record_codec
from halfmoon.core.records.batches import batch_body, iter_records, parse_header
from halfmoon.core.records.record_codec import Extent, Record
from halfmoon.core.relay import tried
from halfmoon.schema.provenance import ORIGIN_BYTES, Origin, decode_origin
from halfmoon.services.waiting.brought import Brought
from halfmoon.services.waiting.types import Scheduled

if TYPE_CHECKING:
    from halfmoon.core.catalog.catalog import Catalog
    from halfmoon.core.catalog.topics import Partition
    from halfmoon.core.partition_reader import PartitionReader
    from halfmoon.core.records.batch_header import BatchHeader
    from halfmoon.core.relay import Load
    from halfmoon.core.storage.storage import Place
    from halfmoon.services.waiting.due_clock import DueClock
    from halfmoon.services.waiting.state import AttemptsState


class WaitingFrame:
    """Messages that were sent to `origin`, and wait."""

    __slots__ = ("batch", "header", "origin")

    def __init__(self, origin: Origin, header: BatchHeader, batch: memoryview) -> None:
        self.origin = origin
        self.header = header
        self.batch = batch


class WaitingMessages:
    def __init__(self, reader: PartitionReader, catalog: Catalog, attempts: AttemptsState, clock: DueClock) -> None:
        self._reader = reader
        self.brought = Brought(reader)
        self._catalog = catalog
        self._attempts = attempts
        self._clock = clock

    def frame_now(self, place: Place) -> WaitingFrame:
        """The frame that stands there. Raises NotHereYetError."""
        return _frame(self.brought.now(place))

    def frames(self, places: Sequence[Place]) -> Generator[Load | None, Any, list[WaitingFrame]]:
        """The frames that stand there. Raises OSError."""
        read = self._reader.read_at(places)
        slices = read.slices if read.cold is None else (yield tried(read.cold))
        if isinstance(slices, OSError):
            raise slices
        return [_frame(piece) for piece in slices]

    def read(
        self, wanted: Sequence[tuple[Partition, int]]
    ) -> Generator[Load | None, Any, list[tuple[Origin, memoryview] | OSError | None]]:
        """The frames that begin at these offsets, in their order: origin and batch. None where nothing of it waits any
        more, or it is lost to corruption; the error where it cannot be read now."""
        places: list[tuple[int, int, int]] = []
        for at, (partition, base) in enumerate(wanted):
            pending = partition.pending
            if pending is None or (
                base not in pending and not pending.count(base, base + partition.queue.span_at(base))
            ):
                continue
            place = place_of(partition, base)
            if place is not None:
                places.append((*place, at))
        places.sort()
        read = self._reader.read_at([(position, length) for position, length, _ in places])
        slices = read.slices if read.cold is None else (yield tried(read.cold))
        if isinstance(slices, OSError):  # one by one: what cannot be read holds up no other
            loads = [tried(self._reader.load_at([(position, length)])) for position, length, _ in places]
            each = yield lambda: [load() for load in loads]
            slices = [one if isinstance(one, OSError) else one[0] for one in each]
        found: list[tuple[Origin, memoryview] | OSError | None] = [None] * len(wanted)
        for (_, _, at), piece in zip(places, slices, strict=True):
            found[at] = piece if isinstance(piece, OSError) else parted(memoryview(piece))
        return found

    def message(self, partition: Partition, offset: int, record: Record, origin: Origin) -> Scheduled:
        """What a relay is told of a message."""
        topic = self._catalog.by_number.get(origin.topic_number)
        attempts = self._attempts.attempts.get((partition.topic.number, partition.index, offset), 0)
        name = None if topic is None else topic.name
        return Scheduled(partition.topic.name, partition.index, offset, record, name, attempts, self._clock.wall_ms())


class SingleRecords:
    """A frame of waiting messages, of which single ones are asked for. Its offsets have no holes."""

    __slots__ = ("_base_ms", "_bounds", "_first", "_source", "body", "origin")

    def __init__(self, source: Partition, frame: WaitingFrame) -> None:
        self._source = source
        self._first = frame.header.base_offset
        self._base_ms = frame.header.base_timestamp
        self.origin = frame.origin
        self.body = bytes(batch_body(frame.batch))
        self._bounds = record_codec.walk(self.body, frame.header.record_count)

    def holds(self, source: Partition, offset: int) -> bool:
        return source is self._source and 0 <= offset - self._first < len(self._bounds) - 1

    def extent(self, offset: int) -> Extent:
        """Of a message of it."""
        index = offset - self._first
        start, end = self._bounds[index], self._bounds[index + 1]
        _, timestamp = record_codec.glance(self.body, start, index, self._base_ms)
        return Extent(timestamp, start, end)


def place_of(partition: Partition, offset: int) -> Place | None:
    """Of a waiting message's frame, from its origin on: log position and length. None where it is lost to
    corruption."""
    found = [] if partition.queue.damage_at(offset) else partition.queue.places(offset, 1, min_one=True)
    return with_origin(found[0]) if found else None


def with_origin(batch: Place) -> Place:
    """Of a waiting message's frame, from where its batch stands."""
    position, length = batch
    return position - ORIGIN_BYTES, length + ORIGIN_BYTES


def _frame(piece: memoryview | bytes) -> WaitingFrame:
    origin, batch = parted(memoryview(piece))
    return WaitingFrame(origin, parse_header(batch), batch)


def parted(piece: memoryview) -> tuple[Origin, memoryview]:
    """Origin and batch of what stands at such a place."""
    return decode_origin(piece[:ORIGIN_BYTES]), piece[ORIGIN_BYTES:]


def still_waiting(partition: Partition, base_offset: int, batch: memoryview) -> Iterator[tuple[int, Record]]:
    """What still waits of a batch: offsets and records."""
    assert partition.pending is not None
    for record in iter_records(batch):
        if base_offset + record.offset_delta in partition.pending:
            yield base_offset + record.offset_delta, record
