"""Dead letters of share groups: what was rejected, or given out too often, or has expired, is written to the group's
dead-letter topic once (KIP-1191).

A record whose dead letter is pending stays in its share partition as *rejected*, *exhausted* or *expired*, which is in
the log, with the acknowledgement that said so if there was one. A relay task (core/relay.py) reads it and appends the
dead letter, with provenance of what it was made from in the same frame (form 6), which finishes the record. So what is
pending is a function of the log, and a crash anywhere neither makes a second dead letter nor loses one.

A dead letter has key, value, timestamp and headers of its record, and says where it comes from twice: by the headers of
KIP-1191 (`ShareGroupDLQRecordHelper`), and by those of all other dead letters here (plugins/store/retry), so that
`halfmoon dlq` shows and replays it like them. Its partition is the source's, modulo the number there are.
"""

from __future__ import annotations

import logging
from collections.abc import Generator, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from halfmoon.core.append import Appender
from halfmoon.core.catalog.topics import Partition
from halfmoon.core.partition_reader import PartitionReader
from halfmoon.core.records.batches import build_batch, iter_records, parse_header
from halfmoon.core.records.record_codec import Headers, Record
from halfmoon.core.relay import Load, Relays
from halfmoon.core.topic_administration import TopicAdministration
from halfmoon.errors import BrokerError, Fault, HalfmoonError
from halfmoon.schema.lifetimes import EXPIRED as TTL_OVER
from halfmoon.schema.provenance import GivenUp, SourceRun
from halfmoon.services.common.group_events import tell
from halfmoon.services.share.delivery import ShareDelivery
from halfmoon.services.share.delivery_state import EXHAUSTED, EXPIRED, REJECTED, Run
from halfmoon.services.share.parts import Part, Place
from halfmoon.services.share.share_partition import Extent

AT_ONCE = 200
"""Dead letters in one batch at most, …"""
AT_ONCE_BYTES = 1 << 20
"""… made of so many bytes of the log, and of so many once these are decompressed. One record may be larger."""

PREFIX = "__dlq.errors."
MESSAGES = {
    REJECTED: "Offset rejected by client.",
    EXHAUSTED: "Offset delivery count exceeded the threshold.",
    EXPIRED: "Offset expired.",
}
"""What KIP-1191's header `message` says, by the record's state; the last is ours."""
TIMES, TOPIC, ORIGIN, REASON = "RECONSUME_TIME", "RETRY_TOPIC", "ORIGIN_MESSAGE_ID", "halfmoon.reason"

MAY_PASS = (Fault.KAFKA_STORAGE_ERROR, Fault.INVALID_PARTITIONS, Fault.NOT_LEADER_OR_FOLLOWER)
"""What keeps a dead letter from its topic for now; the last: the topic is being made, or grown, for several logs."""

Row = tuple[bytes | None, bytes | None, int, Headers]


class DeadLetters:
    """A relay task (core/relay.py). It reads what is pending and appends dead letters."""

    def __init__(
        self,
        delivery: ShareDelivery,
        reader: PartitionReader,
        appender: Appender,
        relays: Relays,
        topics: TopicAdministration,
        logger: logging.Logger,
    ) -> None:
        self._delivery = delivery
        self._parts = delivery.parts
        self._reader = reader
        self._appender = appender
        self._relays = relays
        self._topics = topics
        self._logger = logger
        self.written = 0
        self.unwritten = 0
        """Records of which no dead letter could be written."""
        self._pending: dict[Part, None] = {}
        self._failed: dict[Part, None] = {}
        """Those that are tried again after a pause."""
        delivery.dead_letters = self

    def __str__(self) -> str:
        return "dead letters of share groups"

    def start(self) -> None:
        """Take up what is pending since the last time."""
        for part in self._parts.with_pending_dead_letters():
            self.pending(part)
        self._relays.add(self, self)

    def pending(self, part: Part) -> None:
        """Dead letters of this share partition are to be written."""
        self._pending[part] = None
        self._relays.wake(self)

    def lost(self, count: int) -> None:
        """So many records are gone before their dead letters were written."""
        self.unwritten += count

    def run(self) -> Generator[Load | None, Any, None]:
        """A batch of dead letters of one share partition, then of the next. What cannot be done now for one of them
        holds up no other: it is tried again when they are done, after a pause."""
        delivery, pending = self._delivery, self._pending
        problem: HalfmoonError | OSError | None = None
        pending.update(self._failed)
        self._failed.clear()
        while pending:
            part = next(iter(pending))
            del pending[part]
            run = part.first_pending_dead_letter() if self._parts.is_at_work(part) else None
            if run is None:
                delivery.put_away([part])
                continue
            pending[part] = None
            try:
                yield from self._write(part, run._replace(end=min(run.end, run.first + AT_ONCE)))
            except (HalfmoonError, OSError) as error:
                problem = error
                del pending[part]
                self._failed[part] = None
            yield None
        if problem is not None:
            raise problem

    def _write(self, part: Part, run: Run) -> Generator[Load | None, Any, None]:
        """Write the dead letters of some records that are next to each other, or of the first of them."""
        group, partition = part.place
        options = self._delivery.options.of(group)
        if run.first < partition.start_offset:
            self._skip(part, run.first, min(run.end, partition.start_offset), "its records are gone")
            return
        if partition.queue.damage_at(run.first):
            self._skip(part, run.first, run.first + 1, "its records are lost to disk corruption")
            return
        rows = partition.queue.rows_upto(run.first, run.end, AT_ONCE_BYTES)
        read = self._reader.read_at([(position, length) for _, _, position, length in rows])
        end = min(run.end, rows[-1][0] + rows[-1][1]) if rows else run.end

        def load() -> DeadLetterBatch | HalfmoonError | OSError:
            try:
                slices = read.slices if read.cold is None else read.cold()
                return make(slices, part.place, run._replace(end=end), copy=options.copy_records)
            except (HalfmoonError, OSError) as error:
                return error  # raised in the thread it would end the run

        made = yield load
        if not isinstance(made, DeadLetterBatch):
            raise made
        if not self._parts.is_at_work(part) or part.start > run.first:
            return  # the group was reset meanwhile, or the records are gone
        if made.batch is None:
            self._skip(part, run.first, made.end, "there are no such records")
            return
        if not options.dead_letter_topic:
            self._skip(part, run.first, made.end, "no letters are wanted")
            return
        try:
            target = self._target(options.dead_letter_topic, partition)
        except BrokerError as error:
            if error.fault in MAY_PASS:
                raise
            self._skip(part, run.first, made.end, str(error))
            return
        if target.topic is partition.topic:
            self._skip(part, run.first, made.end, "they would come to where they come from")
            return
        sources = tuple(
            SourceRun(partition.topic.number, partition.index, first, end - first) for first, end in made.sources
        )
        self._appender.append_relayed(target, made.batch, given_up=GivenUp(group, sources))
        written = sum(source.count for source in sources)
        self.written += written
        tell(self._delivery.events.dead_lettered, group, partition.topic.name, partition.index, written)
        self._delivery.dead_letters_written(part, made.sources)
        if written < made.end - run.first:
            self._skip(part, run.first, made.end, "there are no others", but=written)

    def _skip(self, part: Part, first: int, end: int, reason: str, but: int = 0) -> None:
        """Write none for what is still pending of these, all `but` so many."""
        count = end - first - but
        self._logger.error(
            "event=no_dead_letter group=%s partition=%r first=%d count=%d reason=%s",
            part.place.group, part.place.partition, first, count, reason,
        )  # fmt: skip
        self._delivery.finish_without_dead_letter(part, first, end)
        self.unwritten += count

    def _target(self, name: str, source: Partition) -> Partition:
        here = self._topics.first_partition(name).topic.here()
        return here[source.index % len(here)]


class DeadLetterBatch(NamedTuple):
    """Some dead letters in a batch, None where there is nothing to make any of; the offsets that they are made of, and
    that all below `end` are among them, if they can be read."""

    batch: bytearray | None
    sources: list[Extent]
    end: int


def make(slices: Sequence[memoryview | bytes], place: Place, run: Run, *, copy: bool) -> DeadLetterBatch:
    """In a thread: batches may have to be decompressed, to many times their size. What cannot be read is left out, as
    nobody could read it."""
    group, partition = place
    rows: list[Row] = []
    sources: list[Extent] = []
    size = 0
    for piece in slices:
        base = parse_header(piece).base_offset
        with suppress(BrokerError):
            for record in iter_records(piece, created=True):
                offset = base + record.offset_delta
                if not run.first <= offset < run.end:
                    continue
                size += _size(record)
                if rows and size > AT_ONCE_BYTES:
                    return DeadLetterBatch(bytearray(build_batch(rows)), sources, offset)
                rows.append(dead_letter(group, partition, offset, record, run, copy=copy))
                if sources and sources[-1].end == offset:
                    sources[-1] = Extent(sources[-1].first, offset + 1)
                else:
                    sources.append(Extent(offset, offset + 1))
    return DeadLetterBatch(bytearray(build_batch(rows)) if rows else None, sources, run.end)


def _size(record: Record) -> int:
    pieces = [record.key, record.value, *(content for _, content in record.headers)]
    return sum(len(piece) for piece in pieces if piece)


def dead_letter(group: str, partition: Partition, offset: int, record: Record, run: Run, *, copy: bool) -> Row:
    """The dead letter of a record; without `copy` only what KIP-1191 puts in it then: where it stands."""
    topic = partition.topic.name
    said = {
        "topic": topic,
        "partition": str(partition.index),
        "offset": str(offset),
        "group": group,
        "delivery.count": str(run.deliveries),
        "message": MESSAGES[run.state],
    }
    if run.state == EXPIRED:
        reason = f"{TTL_OVER} (given out {run.deliveries} times)"
    elif run.state == EXHAUSTED:
        reason = f"given out {run.deliveries} times"
    else:
        reason = f"rejected when given out for the {run.deliveries}. time"
    headers: list[tuple[str, bytes | None]] = []
    if copy:
        headers += [
            header
            for header in record.headers
            if not header[0].startswith((PREFIX, "halfmoon.")) and header[0] != TIMES
        ]
    names = {name for name, _ in headers}
    if TOPIC not in names and ORIGIN not in names:
        headers += [(TOPIC, topic.encode()), (ORIGIN, f"{topic}/{partition.index}/{offset}".encode())]
    headers += [(PREFIX + name, content.encode()) for name, content in said.items()]
    headers += [(TIMES, str(run.deliveries).encode()), (REASON, reason.encode())]
    key, value = (record.key, record.value) if copy else (None, None)
    return key, value, record.timestamp, tuple(headers)
