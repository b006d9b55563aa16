"""Moves waiting messages out of old segments, so that a few of them do not keep much disk (RocketMQ: TimerMessageStore
rolls, too, but by time).

A segment can go when nothing in it lives. A message that waits forty days would keep its segment, and all after it, for
forty days. So where the oldest segments are kept by waiting messages alone, and more than two segments' worth of them
is dead, those of the oldest segments are appended again, to the tail of their own queue, with the proof of what they
were. Disk that is kept by waiting messages is thereby at most what they take themselves, and two segments.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from halfmoon.core.batch_header import CODEC_MASK
from halfmoon.core.frame import HEADER_BYTES
from halfmoon.core.gathering import Outgoing
from halfmoon.core.provenance import ORIGIN_BYTES, SourceRun, decode_origin
from halfmoon.core.records import batch_body, iter_records, parse_header

if TYPE_CHECKING:
    from halfmoon.core.broker import Broker
    from halfmoon.core.catalog.topics import Partition
    from halfmoon.core.relay import Load

SEGMENTS_OF_DEAD = 2


class Rolling:
    """A mover (core/relay.py)."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._upto = 0
        """Waiting messages below this log position are to move."""
        self.rolled = 0

    def __str__(self) -> str:
        return "rolling of waiting messages"

    def start(self) -> None:
        self._broker.relays.add(self, self)

    def consider(self, kept_for_others: int) -> None:
        """Begin, if it is time. From `kept_for_others` on, the log is kept for other reasons than waiting messages."""
        log = self._broker.log
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
            self._broker.relays.wake(self)

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
        return (partition for partition in self._broker.catalog.partitions() if partition.pending)

    def run(self) -> Generator[Load | None, Any, None]:
        if self._upto <= self._broker.log.start:
            return
        for partition in list(self._waiting()):
            yield from self._roll(partition)

    def _roll(self, partition: Partition) -> Generator[Load | None, Any, None]:
        pending, queue = partition.pending, partition.queue
        assert pending is not None
        at = pending.first()
        while at is not None:
            found = [] if queue.damage_at(at) else queue.places(at, 1, min_one=True)
            if not found:  # lost to rot; it keeps nothing
                at = pending.first(at + 1)
                continue
            position, length = found[0]
            if position >= self._upto:
                return
            read = self._broker.reader.read([(position - ORIGIN_BYTES, length + ORIGIN_BYTES)])
            (piece,) = read.slices if read.cold is None else (yield read.cold)
            while self._broker.deliveries.is_gathering:  # it has read messages that it is about to append
                yield None
            at = pending.first(self._move(partition, memoryview(piece)))
            yield None

    def _attempts(self, partition: Partition, sources: Iterable[SourceRun]) -> list[SourceRun]:
        """How often those were put off that are to be appended next, by their new offsets."""
        attempts = self._broker.state.attempts.attempts
        number, index = partition.topic.number, partition.index
        offsets = (offset for run in sources for offset in range(run.first_offset, run.first_offset + run.count))
        return [
            SourceRun(number, index, new, times)
            for new, offset in enumerate(offsets, partition.next_offset)
            if (times := attempts.get((number, index, offset)))
        ]

    def _move(self, partition: Partition, piece: memoryview) -> int:
        """Append what waits of one frame again; the offset behind it."""
        pending = partition.pending
        assert pending is not None
        origin, batch = decode_origin(piece[:ORIGIN_BYTES]), piece[ORIGIN_BYTES:]
        header = parse_header(batch)
        target = self._broker.catalog.by_number.get(origin.topic_number)
        if self._broker.state.cancels.cancels and target is not None:
            # What is appended again would seem to have come after them.
            self._broker.cancelling.settle_among(target, partition, header.base_offset, batch)
        out = Outgoing(partition, header.attributes & CODEC_MASK)
        body = bytes(batch_body(batch))
        due_ms = partition.queue.time_of(header.base_offset)

        def append(out: Outgoing) -> None:
            if not out.is_empty:
                sources = out.sources()
                self._broker.append_relayed(
                    partition, out.batch(), sources=sources, origin=origin, due_ms=due_ms,
                    attempts=self._attempts(partition, sources),
                )  # fmt: skip
                self.rolled += out.count
                out.begin()

        for record in iter_records(batch):
            offset = header.base_offset + record.offset_delta
            if offset in pending:
                if out.is_full:
                    append(out)
                out.take(partition, offset, body, record)
        append(out)
        return header.base_offset + header.last_offset_delta + 1
