"""Dead letters of share groups: what was rejected, or given out too often, is written to the group's dead-letter topic
once (KIP-1191).

A record that is owed a letter stays in its share partition as *rejected* or *exhausted*, which is in the log with the
acknowledgement that said so. A mover (core/relay.py) reads it and appends the letter, with the proof of what it was
made from in the same frame (provenance, form 6), which settles it. So what is owed is a function of the log, and a
crash anywhere makes neither a second letter nor loses one.

A letter has key, value, timestamp and headers of its record, and says where it comes from twice: by the headers of
KIP-1191 (`ShareGroupDLQRecordHelper`), and by those of all other dead letters here (plugins/store/retry.py), so that
`halfmoon dlq` shows and replays it like them. Its partition is the source's, modulo the number there are.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from halfmoon.core.errors import BrokerError, Fault, HalfmoonError
from halfmoon.core.provenance import GivenUp, SourceRun
from halfmoon.core.record_codec import Headers, Record
from halfmoon.core.records import build_batch, iter_records, parse_header
from halfmoon.core.share.ledger import EXHAUSTED, Run
from halfmoon.core.share.share_partition import Extent

if TYPE_CHECKING:
    from halfmoon.core.broker import Broker
    from halfmoon.core.catalog.topics import Partition
    from halfmoon.core.relay import Load
    from halfmoon.core.share.service import Part, Place, ShareService

AT_ONCE = 200
"""Letters in one batch at most, …"""
AT_ONCE_BYTES = 1 << 20
"""… made of so many bytes of the log, and of so many once these are decompressed. One record may be larger."""

PREFIX = "__dlq.errors."
MESSAGES = {False: "Offset rejected by client.", True: "Offset delivery count exceeded the threshold."}
"""What KIP-1191's header `message` says, by whether the record was exhausted."""
TIMES, TOPIC, ORIGIN, REASON = "RECONSUME_TIME", "RETRY_TOPIC", "ORIGIN_MESSAGE_ID", "halfmoon.reason"

Row = tuple[bytes | None, bytes | None, int, Headers]


class DeadLetters:
    def __init__(self, broker: Broker, shares: ShareService) -> None:
        self._broker = broker
        self._shares = shares
        self.written = 0
        self.unwritten = 0
        """Records of which no letter could be written."""
        self._owing: dict[Part, None] = {}
        self._failed: dict[Part, None] = {}
        """Those that are tried again after a pause."""

    def __str__(self) -> str:
        return "dead letters of share groups"

    def owe(self, part: Part) -> None:
        """The share partition owes some."""
        self._owing[part] = None
        self._broker.relays.wake(self)

    def run(self) -> Generator[Load | None, Any, None]:
        """A batch of letters of one share partition, then of the next. What cannot be done now for one of them holds up
        no other: it is tried again when they are done, after a pause."""
        shares, owing = self._shares, self._owing
        problem: HalfmoonError | OSError | None = None
        owing.update(self._failed)
        self._failed.clear()
        while owing:
            part = next(iter(owing))
            del owing[part]
            run = part.first_owed() if shares.is_at_work(part) else None
            if run is None:
                shares.put_away([part])
                continue
            owing[part] = None
            try:
                yield from self._bury(part, run._replace(end=min(run.end, run.first + AT_ONCE)))
            except (HalfmoonError, OSError) as error:
                problem = error
                del owing[part]
                self._failed[part] = None
            yield None
        if problem is not None:
            raise problem

    def _bury(self, part: Part, run: Run) -> Generator[Load | None, Any, None]:
        """Write the letters of some records that stand together, or of the first of them."""
        group, partition = part.place
        options = self._shares.options(group)
        if run.first < partition.start_offset:
            self._give_up(part, run.first, min(run.end, partition.start_offset), "its records are gone")
            return
        if partition.queue.damage_at(run.first):
            self._give_up(part, run.first, run.first + 1, "its records are lost to a damaged disk")
            return
        rows = partition.queue.rows_upto(run.first, run.end, AT_ONCE_BYTES)
        read = self._broker.reader.read([(position, length) for _, _, position, length in rows])
        end = min(run.end, rows[-1][0] + rows[-1][1]) if rows else run.end

        def load() -> Letters | HalfmoonError | OSError:
            try:
                slices = read.slices if read.cold is None else read.cold()
                return make(slices, part.place, run._replace(end=end), copy=options.copy_records)
            except (HalfmoonError, OSError) as error:
                return error  # raised in the thread it would end the run

        made = yield load
        if not isinstance(made, Letters):
            raise made
        if not self._shares.is_at_work(part) or part.start > run.first:
            return  # the group was reset meanwhile, or the records are gone
        if made.batch is None:
            self._give_up(part, run.first, made.end, "there are no such records")
            return
        if not options.dead_letter_topic:
            self._give_up(part, run.first, made.end, "no letters are wanted")
            return
        try:
            target = self._target(options.dead_letter_topic, partition)
        except BrokerError as error:
            if error.fault in (Fault.KAFKA_STORAGE_ERROR, Fault.INVALID_PARTITIONS):
                raise  # this may pass
            self._give_up(part, run.first, made.end, str(error))
            return
        if target.topic is partition.topic:
            self._give_up(part, run.first, made.end, "they would come to where they come from")
            return
        sources = tuple(
            SourceRun(partition.topic.number, partition.index, first, end - first) for first, end in made.sources
        )
        self._broker.append_relayed(target, made.batch, given_up=GivenUp(group, sources))
        written = sum(source.count for source in sources)
        self.written += written
        self._shares.buried(part, made.sources)
        if written < made.end - run.first:
            self._give_up(part, run.first, made.end, "there are no others", but=written)

    def _give_up(self, part: Part, first: int, end: int, reason: str, but: int = 0) -> None:
        """What is still owed of these, all `but` so many."""
        count = end - first - but
        self._broker.logger.error(
            "event=no_dead_letter group=%s partition=%r first=%d count=%d reason=%s",
            part.place.group, part.place.partition, first, count, reason,
        )  # fmt: skip
        self._shares.bury_unwritten(part, first, end)
        self.unwritten += count

    def _target(self, name: str, source: Partition) -> Partition:
        topic = self._broker.first_partition(name).topic
        return topic.partitions[source.index % len(topic.partitions)]


class Letters(NamedTuple):
    """Some letters in a batch, None where there is nothing to make any of; the offsets that they are made of, and that
    all below `end` are among them, if they can be read."""

    batch: bytearray | None
    sources: list[Extent]
    end: int


def make(slices: Sequence[memoryview | bytes], place: Place, run: Run, *, copy: bool) -> Letters:
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
                    return Letters(bytearray(build_batch(rows)), sources, offset)
                rows.append(letter(group, partition, offset, record, run, copy=copy))
                if sources and sources[-1].end == offset:
                    sources[-1] = Extent(sources[-1].first, offset + 1)
                else:
                    sources.append(Extent(offset, offset + 1))
    return Letters(bytearray(build_batch(rows)) if rows else None, sources, run.end)


def _size(record: Record) -> int:
    pieces = [record.key, record.value, *(content for _, content in record.headers)]
    return sum(len(piece) for piece in pieces if piece)


def letter(group: str, partition: Partition, offset: int, record: Record, run: Run, *, copy: bool) -> Row:
    """The dead letter of a record; without `copy` only what KIP-1191 puts in it then: where it stands."""
    topic = partition.topic.name
    exhausted = run.state == EXHAUSTED
    said = {
        "topic": topic,
        "partition": str(partition.index),
        "offset": str(offset),
        "group": group,
        "delivery.count": str(run.deliveries),
        "message": MESSAGES[exhausted],
    }
    reason = (
        f"given out {run.deliveries} times" if exhausted else f"rejected when given out for the {run.deliveries}. time"
    )
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
