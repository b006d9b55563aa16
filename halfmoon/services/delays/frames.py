"""Frames of waiting messages, found in the consume queues and read from the log.

A consume queue has a row for each frame: where it stands, and when the first of its messages is due. Where its messages
are to go stands in the log, right before the batch (`Origin`), and so do their own times, where a batch has many
(OWN_TIMES). So rows are sorted out first, then heads are read, and whole batches only of what is told or changed.

What takes long is in slices (core/steps.py): rows may be a million.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, TypeVar

from msgspec import Struct

from halfmoon.core.catalog.catalog import Catalog
from halfmoon.core.catalog.topics import Partition
from halfmoon.core.partition_reader import PartitionReader
from halfmoon.core.records.batch_header import HEADER_BYTES, OWN_TIMES, parse_header
from halfmoon.core.records.batches import iter_records
from halfmoon.core.records.record_codec import Record
from halfmoon.core.steps import Slices
from halfmoon.schema.provenance import ORIGIN_BYTES, Origin, UnknownProvenanceError, decode_origin
from halfmoon.services.delays.ports import WaitingMessages
from halfmoon.services.delays.questions import Cursor

ItemT = TypeVar("ItemT")

ROWS = 1_000
"""Rows that are looked at between two pauses: about half a millisecond."""
STRETCH = 200_000
"""Rows that one question looks at."""
HEADS = 64
"""Heads of frames that are read together."""
READ_BYTES = 4 << 20
"""Most of whole frames that are read together, unless one is larger."""
FRAMES = 64
"""Most frames that are."""


class Window(Struct, frozen=True):
    """Messages that are due at `from_ms` or later and before `to_ms` (Unix ms)."""

    from_ms: int
    to_ms: int

    def __contains__(self, due_ms: int) -> bool:
        return self.from_ms <= due_ms < self.to_ms


class Frame(NamedTuple):
    """Some of its messages wait."""

    due_ms: int
    """When the first of its messages is due, or was."""
    partition: Partition
    base: int
    span: int
    position: int
    """Of its batch in the log."""
    length: int


class Head(NamedTuple):
    frame: Frame
    origin: Origin
    own_times: bool
    """Its messages are due at times of their own."""


class Whole(NamedTuple):
    frame: Frame
    origin: Origin
    batch: memoryview
    own_times: bool

    def waiting(self) -> Iterator[tuple[int, int, Record]]:
        """Offset, due time and record of each message that waits still. Raises BrokerError where the batch cannot be
        decompressed."""
        pending, base = self.frame.partition.pending, self.frame.base
        assert pending is not None
        for record in iter_records(self.batch):
            if base + record.offset_delta in pending:
                yield base + record.offset_delta, record.timestamp if self.own_times else self.frame.due_ms, record


class Frames:
    def __init__(self, catalog: Catalog, reader: PartitionReader, waiting: WaitingMessages) -> None:
        self._catalog = catalog
        self._reader = reader
        self._waiting = waiting

    def queues(self) -> list[Partition]:
        """In which messages wait for a time, by topic and partition. What waits for a decision, and what belongs to a
        plugin that is off, is nobody's to touch but that plugin's."""
        names = sorted(set(self._waiting.claimed_topics) - set(self._waiting.decided_topics))
        topics = [topic for name in names if (topic := self._catalog.topic(name)) is not None]
        return [partition for topic in topics for partition in topic.partitions if partition.pending]

    # -- by their rows -------------------------------------------------------------------------------------------------

    def look(
        self, queues: Sequence[Partition], at: Cursor, window: Window, upto: int
    ) -> tuple[list[Frame], int, Cursor | None]:
        """Of the next ROWS rows from `at` on, those that may have messages of the window, from before log position
        `upto`; how many rows that were; and where to go on, None at the end."""
        begin = at.topic, at.partition
        number = bisect_left(queues, begin, key=_name)
        if number == len(queues):
            return [], 0, None
        partition = queues[number]
        offset = at.offset if _name(partition) == begin else 0
        found, looked, end = _rows(partition, max(offset, partition.start_offset), window, upto)
        if end is not None:
            return found, looked, Cursor(at.shard, *_name(partition), end, at.upto)
        if number + 1 == len(queues):
            return found, looked, None
        return found, looked, Cursor(at.shard, *_name(queues[number + 1]), 0, at.upto)

    # -- from the log --------------------------------------------------------------------------------------------------

    def heads(self, frames: Sequence[Frame]) -> Slices[list[Head]]:
        """Of those that wait still and can be read. Raises OSError."""
        found: list[Head] = []
        for at in range(0, len(frames), HEADS):
            some = sorted(filter(waits, frames[at : at + HEADS]), key=lambda frame: frame.position)
            places = [(frame.position - ORIGIN_BYTES, ORIGIN_BYTES + HEADER_BYTES) for frame in some]
            for frame, piece in zip(some, (yield from self._read(places)), strict=True):
                read = _head(frame, memoryview(piece))
                if read is not None:
                    found.append(read)
            yield None
        return found

    def whole(self, frames: Sequence[Frame]) -> Slices[list[Whole]]:
        """Those that wait still and can be read, in their order. Call it with what `together` gives. Raises OSError."""
        frames = list(filter(waits, frames))  # what waits keeps its segment; what is delivered may be gone
        places = [(frame.position - ORIGIN_BYTES, ORIGIN_BYTES + frame.length) for frame in frames]
        found: list[Whole] = []
        for frame, piece in zip(frames, (yield from self._read(places)), strict=True):
            view = memoryview(piece)
            head = _head(frame, view)
            if head is not None:
                found.append(Whole(frame, head.origin, view[ORIGIN_BYTES:], head.own_times))
        return found

    def _read(self, places: Sequence[tuple[int, int]]) -> Slices[Sequence[memoryview | bytes]]:
        read = self._reader.read_at(places)
        if read.cold is None:
            return read.slices
        pieces: Sequence[memoryview | bytes] = yield read.cold
        return pieces


def _name(partition: Partition) -> tuple[str, int]:
    """By which queues are sorted."""
    return partition.topic.name, partition.index


def together(items: Sequence[ItemT], frame_of: Callable[[ItemT], Frame]) -> Iterator[list[ItemT]]:
    """Those whose frames are read at once."""
    some: list[ItemT] = []
    size = 0
    for item in items:
        length = frame_of(item).length
        if some and (len(some) == FRAMES or size + length > READ_BYTES):
            yield some
            some, size = [], 0
        some.append(item)
        size += length
    if some:
        yield some


def waits(frame: Frame) -> bool:
    """Whether any of its messages does, still."""
    pending = frame.partition.pending
    return pending is not None and pending.count(frame.base, frame.base + frame.span) > 0


def frame_at(partition: Partition, offset: int) -> Frame | None:
    """The frame with this message, if that waits."""
    queue, pending = partition.queue, partition.pending
    if pending is None or offset not in pending or queue.damage_at(offset):
        return None
    run = next((run for run in queue.runs_from(offset) if run.end_offset > offset), None)
    if run is None:
        return None
    columns, row = run.columns, run.row_for(offset)
    if columns.base[row] > offset:
        return None
    length = columns.total[row] - run.before(row)
    return Frame(columns.max_ms[row], partition, columns.base[row], columns.span[row], columns.position[row], length)


def pending_in(frame: Frame) -> list[int]:
    """The offsets that wait."""
    pending = frame.partition.pending
    if pending is None:
        return []
    if frame.span == 1:
        return [frame.base] if frame.base in pending else []
    return list(pending.between(frame.base, frame.base + frame.span))


def _rows(partition: Partition, offset: int, window: Window, upto: int) -> tuple[list[Frame], int, int | None]:
    """As `Frames.look`, of one queue; the offset to go on at."""
    queue, pending = partition.queue, partition.pending
    run = next((run for run in queue.runs_from(offset) if run.end_offset > offset), None)
    if run is None or pending is None:
        return [], 1, None
    columns, row = run.columns, run.row_for(offset)
    last = min(run.high, row + ROWS)
    before, total = run.before(row), columns.total
    found: list[Frame] = []
    from_ms, to_ms = window.from_ms, window.to_ms
    for at in range(row, last):
        base, span, due_ms = columns.base[at], columns.span[at], columns.max_ms[at]
        length, before = total[at] - before, total[at]
        # Of several messages, those behind the first may be due later.
        if due_ms >= to_ms or (due_ms < from_ms and span == 1) or columns.position[at] >= upto:
            continue
        if base in pending or (span > 1 and pending.count(base, base + span)):
            found.append(Frame(due_ms, partition, base, span, columns.position[at], length))
    if queue.damaged:
        found = [frame for frame in found if not queue.damage_at(frame.base)]
    end = columns.base[last - 1] + columns.span[last - 1]
    return found, last - row, end if end < queue.end_offset else None


def _head(frame: Frame, piece: memoryview) -> Head | None:
    """None where something else stands there: it was lost to corruption, or went with its segment."""
    try:
        origin = decode_origin(piece[:ORIGIN_BYTES])
    except UnknownProvenanceError:
        return None
    header = parse_header(piece[ORIGIN_BYTES:])
    if header.base_offset != frame.base:
        return None
    return Head(frame, origin, bool(header.attributes & OWN_TIMES))
