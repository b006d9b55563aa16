"""Segment reclaim: moves waiting messages out of old segments, so that a few of them do not keep much disk (RocketMQ:
TimerMessageStore rolls, too, but by time).

A segment can go when nothing in it lives. A message that waits forty days would keep its segment, and all after it, for
forty days. So where the oldest segments are kept by waiting messages alone, and more than two segments' worth of them
is dead, those of the oldest segments are appended again, to the tail of their own queue, with the provenance of what
they were. Disk that is kept by waiting messages is thereby at most what they take themselves, and two segments.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from typing import Any

from halfmoon.core.append import Appender
from halfmoon.core.catalog.catalog import Catalog
from halfmoon.core.catalog.topics import Partition
from halfmoon.core.partition_reader import PartitionReader
from halfmoon.core.records.batch_header import CODEC_MASK, OWN_TIMES
from halfmoon.core.records.batches import batch_body, iter_records, parse_header
from halfmoon.core.relay import Load, Relays, tried
from halfmoon.core.storage.frame import HEADER_BYTES
from halfmoon.core.storage.storage import WriteSide
from halfmoon.schema.provenance import ORIGIN_BYTES, Origin, SourceRun
from halfmoon.services.common.gathering import Outgoing
from halfmoon.services.waiting.cancels import Cancels
from halfmoon.services.waiting.deciding import Deciding
from halfmoon.services.waiting.deliveries import Deliveries
from halfmoon.services.waiting.messages import parted, place_of
from halfmoon.services.waiting.queues import WaitingQueues
from halfmoon.services.waiting.state import AttemptsState

SEGMENTS_OF_DEAD = 2


class SegmentReclaim:
    """A relay task (core/relay.py)."""

    def __init__(
        self,
        log: WriteSide,
        catalog: Catalog,
        appender: Appender,
        reader: PartitionReader,
        relays: Relays,
        attempts: AttemptsState,
        deliveries: Deliveries,
        deciding: Deciding,
        queues: WaitingQueues,
        cancels: Cancels,
    ) -> None:
        self._log = log
        self._catalog = catalog
        self._appender = appender
        self._reader = reader
        self._relays = relays
        self._attempts = attempts
        self._deliveries = deliveries
        self._deciding = deciding
        self._queues = queues
        self._cancels = cancels
        self._upto = 0
        """Waiting messages below this log position are to move."""
        self.moved = 0
        """Messages."""

    def __str__(self) -> str:
        return "segment reclaim"

    def start(self) -> None:
        self._relays.add(self, self)

    def consider(self, kept_for_others: int) -> None:
        """Begin, if it is time. From `kept_for_others` on, the log is kept for other reasons than waiting messages."""
        log = self._log
        ahead = [segment for segment in log.segments[:-1] if segment.end <= kept_for_others]
        if log.failed is not None or len(ahead) <= SEGMENTS_OF_DEAD:
            return
        dead = sum(segment.size for segment in ahead) - self._live_bytes(ahead[-1].end)
        upto = log.start
        for segment in ahead:
            if dead <= SEGMENTS_OF_DEAD * log.segment_bytes:
                break
            dead -= segment.size - (self._live_bytes(segment.end) - self._live_bytes(upto))
            upto = segment.end
        if upto > max(self._upto, log.start):
            self._upto = upto
            self._relays.wake(self)

    def _live_bytes(self, position: int) -> int:
        """About what waits below a log position takes: from how many, and the mean size of a message in its queue."""
        live = 0
        for partition in self._waiting():
            pending = partition.pending
            assert pending is not None
            rows = size = offsets = 0
            upto = partition.start_offset
            for run in partition.queue.runs():
                rows += run.high - run.low
                size += run.bytes
                offsets += run.end_offset - run.first_offset
                if run.columns.position[run.high - 1] < position:
                    upto = run.end_offset
            if offsets:
                mean = (size + rows * (HEADER_BYTES + ORIGIN_BYTES)) / offsets
                live += int(mean * pending.count(partition.start_offset, upto))
        return live

    def _waiting(self) -> Iterator[Partition]:
        return (partition for partition in self._catalog.partitions() if partition.pending)

    def run(self) -> Generator[Load | None, Any, None]:
        if self._upto <= self._log.start:
            return
        problem: OSError | None = None
        for partition in list(self._waiting()):
            problem = (yield from self._move_from(partition)) or problem
        if problem is not None:
            raise problem

    def _move_from(self, partition: Partition) -> Generator[Load | None, Any, OSError | None]:
        """What could not be read holds up no other message; the error is returned then."""
        problem: OSError | None = None
        pending = partition.pending
        assert pending is not None
        at = pending.first()
        while at is not None:
            place = place_of(partition, at)
            if place is None:  # lost to corruption; it keeps nothing
                at = pending.first(at + 1)
                continue
            if place[0] >= self._upto:
                break
            read = self._reader.read_at([place])
            slices = read.slices if read.cold is None else (yield tried(read.cold))
            if isinstance(slices, OSError):
                problem = slices
                at = pending.first(at + 1)
                continue
            (piece,) = slices
            while self._deliveries.is_gathering:  # it has read messages that it is about to append
                yield None
            at = pending.first(self._move(partition, *parted(memoryview(piece))))
            yield None
        return problem

    def _attempts_of(self, partition: Partition, sources: Iterable[SourceRun]) -> list[SourceRun]:
        """How often those were rescheduled that are to be appended next, by their new offsets."""
        attempts = self._attempts.attempts
        number, index = partition.topic.number, partition.index
        offsets = (offset for run in sources for offset in range(run.first_offset, run.first_offset + run.count))
        return [
            SourceRun(number, index, new, times)
            for new, offset in enumerate(offsets, partition.next_offset)
            if (times := attempts.get((number, index, offset)))
        ]

    def _move(self, partition: Partition, origin: Origin, batch: memoryview) -> int:
        """Append what waits of one frame again; the offset behind it."""
        pending = partition.pending
        assert pending is not None
        header = parse_header(batch)
        target = self._catalog.by_number.get(origin.topic_number)
        if target is not None and self._cancels.any_open_for(target.number):
            # What is appended again would seem to have come after them.
            if partition.topic.name not in self._queues.claimed:
                # Whether they mean these messages nobody can say now, so these stay where they are.
                return header.base_offset + header.last_offset_delta + 1
            self._cancels.complete_among(target, partition, header.base_offset, batch)
        out = Outgoing(partition, header.attributes & CODEC_MASK, header.attributes & OWN_TIMES)
        body = bytes(batch_body(batch))
        due_ms = partition.queue.time_of(header.base_offset)

        def append(out: Outgoing) -> None:
            if not out.is_empty:
                sources, first, moved = out.sources(), partition.next_offset, out.batch()
                self._appender.append_relayed(
                    partition, moved, sources=sources, origin=origin, due_ms=due_ms,
                    attempts=self._attempts_of(partition, sources),
                )  # fmt: skip
                # Now: from here on nothing waits at the old place.
                self._deciding.tell_of(partition, first, memoryview(moved), origin)
                self._queues.waits_in(partition, first, out.count)
                self.moved += out.count
                out.begin()

        for record in iter_records(batch):
            offset = header.base_offset + record.offset_delta
            if offset in pending:
                if out.is_full:
                    append(out)
                out.take(partition, offset, body, record)
        append(out)
        return header.base_offset + header.last_offset_delta + 1
