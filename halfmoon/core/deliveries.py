"""Delivers messages that waited for their time to where they were sent (B29, B30).

A waiting message stands in an internal topic; its consume queue holds when it is due, its frame where it was sent.
What is due when is kept in a timing wheel, which follows the consume queues, at a start from their
beginning. When their time has come, messages are read from the log, gathered by the partition they go to, and appended
there with the proof of what they were (core/provenance.py), which settles them. So each is delivered once, whatever
happens; and after a crash the wheel is made again from what is pending.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from halfmoon.core import record_codec
from halfmoon.core.batch_header import CODEC_MASK, HEADER_BYTES, BatchHeader
from halfmoon.core.due_times import MAX_QUEUES, DueTimes
from halfmoon.core.errors import BrokerError, Fault
from halfmoon.core.gathering import MERGE_RECORDS, Outgoing
from halfmoon.core.provenance import ORIGIN_BYTES, Origin, Provenance, SourceRun, decode_origin
from halfmoon.core.record_codec import Extent, Headers, Record
from halfmoon.core.records import batch_body, build_batch, iter_records, parse_header, set_log_append_time
from halfmoon.schema import control
from halfmoon.services.waiting.types import PutOff, Relay, Settle, Waiting

if TYPE_CHECKING:
    from halfmoon.core.broker import Broker
    from halfmoon.core.catalog.topics import Partition, Topic
    from halfmoon.core.due_times import Due
    from halfmoon.core.relay import Load

UNDELIVERABLE = "halfmoon.undeliverable"
"""Dead letters that belong to no group: messages whose topic was gone when they were due."""
AT_ONCE = 256
"""Frames of waiting messages that are read together."""
RETRY_MS = 10_000
"""A message at which a relay has failed is asked about again after so long."""
WHOLE_RECORDS = 16
"""A batch of so many that are all due is delivered as it stands."""
RELEASED_BYTES = 64 << 20
"""Most that is released at once."""
ONE_BY_ONE_MS = 1_000
DECIDED = 50
"""Messages that relays are asked about between two pauses."""
FOLLOWED = 2_000
"""Rows of a consume queue that are looked at between two pauses: 1 ms."""
TOLD = 20
"""The same where a relay is told of the messages, and so these are read."""


class Deliveries:
    """A mover (core/relay.py): all messages that wait for a time."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._times = DueTimes()
        self.queues: list[Partition] = []
        """Partitions in which messages wait; a number in the wheel is a place in this list."""
        self._followed: dict[Partition, int] = {}
        """Offset up to which the wheel has followed the consume queue."""
        self._known: dict[Partition, tuple[int, int]] = {}
        """Offsets [from, to) of messages that their relay knows of, because it has put them there."""
        self._earlier: list[tuple[int, int, int]] = []
        """(queue, from, to): what was there at the start, and is still to be taken in."""
        self._taken: dict[Due, None] = {}
        """Out of the wheel, and not dealt with yet."""
        self.is_gathering = False
        """Messages have been read that are about to be appended: nobody else may deal with what is due."""
        self.relays: Mapping[str, Relay] = {}
        """Waiting topic → who decides what becomes of its messages; the others are delivered. To be set before
        `start`."""
        self._one_by_one_until_ms = 0
        """Until then, no message is gathered over a pause."""
        self.delivered = 0
        self.lost_targets = 0
        """Messages whose topic was gone when they were due."""

    def __str__(self) -> str:
        return "deliveries"

    def __len__(self) -> int:
        """How many frames wait."""
        return len(self._times) + len(self._taken)

    @property
    def late_ms(self) -> int:
        """How late the next message is that is to be delivered; 0 where none is due."""
        return self._times.overdue_ms(self._broker.due_clock.now_ms())

    def waiting(self) -> int:
        """Messages that wait."""
        return sum(len(partition.pending) for partition in self.queues if partition.pending is not None)

    def start(self) -> None:
        """Make the wheel, and deliver what became due meanwhile. What comes from now on does not wait for that."""
        for partition in self._broker.catalog.partitions():
            if partition.pending is not None:
                self._know(partition, partition.queue.end_offset)
                self._earlier.append((len(self.queues) - 1, partition.start_offset, partition.queue.end_offset))
        # Those whose relay is to be told of them come first.
        self._earlier.sort(key=lambda earlier: self.queues[earlier[0]].topic.name in self.relays)
        self._broker.relays.add(self, self)

    def waits_in(self, partition: Partition, offset: int = 0, known: int = 0) -> None:
        """Messages begin to wait in this partition. Its relay is not told of the `known` ones from `offset` on."""
        if partition not in self._followed:
            self._know(partition, partition.start_offset)
        if known:
            first, last = self._known.get(partition, (0, 0))
            # Others may have come in between. Then the relay is told of those before, too, which does no harm.
            self._known[partition] = first if last == offset else offset, offset + known

    def _know(self, partition: Partition, offset: int) -> None:
        assert len(self.queues) < MAX_QUEUES
        self.queues.append(partition)
        self._followed[partition] = offset

    def arrived(self, partitions: Iterable[Partition]) -> None:
        """Messages became visible in these partitions, of which some may be ours."""
        for partition in partitions:
            if partition in self._followed:
                self._broker.relays.wake(self)
                return

    # -- moving ------------------------------------------------------------------------------------------------------

    def run(self) -> Generator[Load | None, Any, None]:
        for due in self._taken:  # the last run has failed on the way
            self._times.add(*due)
        self._taken = {}
        while True:
            for number in range(len(self.queues)):
                while self._follow(number):
                    yield None
            yield from self._deliver_due()
            if not self._make_up():
                break
            yield None
        next_ms = self._times.next_ms()
        if next_ms is not None:
            self._broker.relays.wake_at(self, self._broker.due_clock.mono_ms(next_ms))

    def _follow(self, number: int) -> bool:
        """Take in some of what has come into a queue since the last time; whether there was anything."""
        partition = self.queues[number]
        begin, end = self._followed[partition], partition.queue.end_offset
        if begin >= end:
            return False
        self._followed[partition] = self._take_in(number, begin, end)
        self._tell(partition, begin, self._followed[partition])
        return True

    def catch_up(self, topic: Topic) -> None:
        """Take in all that stands in a topic's queues, now: somebody asks for one of its messages."""
        for partition in topic.partitions:
            if partition in self._followed:
                number = self.queues.index(partition)
                for at in range(len(self._earlier) - 1, -1, -1):
                    if self._earlier[at][0] == number:
                        while self._take_in_earlier(at):
                            pass
                while self._follow(number):
                    pass

    def _tell(self, partition: Partition, begin: int, end: int) -> None:
        """Tell the relay of what waits in [begin, end) of its queue."""
        relay = self.relays.get(partition.topic.name)
        if relay is None or relay.begin is None or partition.pending is None:
            return
        pending = partition.pending
        known_from, known_to = self._known.get(partition, (0, 0))
        after = begin
        while (at := pending.first(after)) is not None and at < end:
            if known_from <= at < known_to:
                after = known_to
                continue
            try:
                origin, header, batch = self.look_up(partition, at)
            except LookupError:
                after = at + 1
                continue
            for offset, record in self._records(partition, header, batch):
                relay.begin(self._waiting_message(partition, offset, record, origin))
            after = header.base_offset + header.last_offset_delta + 1

    def look_up(self, partition: Partition, offset: int) -> tuple[Origin, BatchHeader, memoryview]:
        """The frame that a waiting message stands in: where it goes, and its batch. Waits for the disk if need be.

        Raises LookupError where it is lost to rot.
        """
        found = [] if partition.queue.damage_at(offset) else partition.queue.places(offset, 1, min_one=True)
        if not found:
            raise LookupError(f"offset {offset} of {partition!r}")
        position, length = found[0]
        read = self._broker.reader.read([(position - ORIGIN_BYTES, length + ORIGIN_BYTES)])
        (piece,) = read.slices if read.cold is None else read.cold()
        view = memoryview(piece)
        return decode_origin(view[:ORIGIN_BYTES]), parse_header(view[ORIGIN_BYTES:]), view[ORIGIN_BYTES:]

    def _records(self, partition: Partition, header: BatchHeader, batch: memoryview) -> Iterator[tuple[int, Record]]:
        """What still waits of a frame."""
        assert partition.pending is not None
        for record in iter_records(batch):
            if header.base_offset + record.offset_delta in partition.pending:
                yield header.base_offset + record.offset_delta, record

    def _waiting_message(self, partition: Partition, offset: int, record: Record, origin: Origin) -> Waiting:
        catalog = self._broker.catalog
        topic = catalog.by_number.get(origin.topic_number)
        attempts = self._broker.state.attempts.attempts.get((partition.topic.number, partition.index, offset), 0)
        name = None if topic is None else topic.name
        now_ms = self._broker.due_clock.now_ms()
        return Waiting(partition.topic.name, partition.index, offset, record, name, attempts, now_ms)

    def _make_up(self) -> bool:
        """Take in some of what was there at the start; whether there was any left."""
        while self._earlier:
            if self._take_in_earlier(-1):
                return True
            self._earlier.pop()
        return False

    def _take_in_earlier(self, at: int) -> bool:
        number, begin, end = self._earlier[at]
        if begin >= end:
            return False
        upto = self._take_in(number, begin, end, at_start=True)
        self._earlier[at] = number, upto, end
        self._tell(self.queues[number], begin, upto)
        return True

    def _take_in(self, number: int, begin: int, end: int, *, at_start: bool = False) -> int:
        """Put what waits in [begin, end) of a queue into the wheel, as far as it can be done at once; up to where."""
        partition = self.queues[number]
        relay = self.relays.get(partition.topic.name)
        attempts = self._broker.state.attempts.attempts if relay is not None and at_start else {}
        again_ms = 0 if relay is None else self._broker.due_clock.now_ms() + relay.pause_ms
        pending = partition.pending
        begin = max(begin, partition.start_offset)
        run = next((run for run in partition.queue.runs_from(begin) if run.end_offset > begin), None)
        if run is None or pending is None:
            return end
        columns, row = run.columns, run.row_for(begin)
        upto = min(run.high, row + (FOLLOWED if relay is None else TOLD))
        add = self._times.add
        for at in range(row, upto):
            base, span = columns.base[at], columns.span[at]
            if base >= end:  # the run has grown since
                return end
            if base in pending or (span > 1 and any(pending.between(base, base + span))):
                due_ms = columns.max_ms[at]
                if attempts and (partition.topic.number, partition.index, base) in attempts:
                    due_ms = max(due_ms, again_ms)  # it was put off; until when, nobody wrote down
                add(due_ms, number, base)
        return columns.base[upto - 1] + columns.span[upto - 1]

    def _deliver_due(self) -> Generator[Load | None, Any, None]:
        times = self._times
        while True:
            now_ms = self._broker.due_clock.now_ms()
            while times.move_down(now_ms):
                yield None
            # What is delivered is settled only when it is appended, so a frame may stand in the wheel twice.
            self._taken = dict.fromkeys(times.pop(now_ms, AT_ONCE))
            if not self._taken:
                break
            yield from self._deliver(list(self._taken), now_ms)
            self._taken = {}
            yield None

    def _deliver(self, due: list[Due], now_ms: int) -> Generator[Load | None, Any, None]:
        pieces = yield from self._read(due)
        self.is_gathering = True
        cancelling = self._broker.cancelling
        try:
            outgoing: dict[Partition, Outgoing] = {}
            gathered: list[Due] = []
            """In `outgoing`, or delivered already."""
            asked = cancelling.asked
            for at, piece in zip(due, pieces, strict=True):
                if piece is not None:  # else dealt with already, or lost to rot
                    if self.queues[at[1]].topic.name not in self.relays:
                        gathered.append(at)
                    yield from self._deliver_frame(at, piece, outgoing, now_ms)
                    if cancelling.asked != asked:
                        # It may mean what was gathered so far: that is looked at again. Where messages are cancelled
                        # all the time nothing is gathered over a pause, or nothing would ever be delivered.
                        self._one_by_one_until_ms = now_ms + ONE_BY_ONE_MS
                        for each in gathered:
                            self._times.add(*each)
                        outgoing, gathered, asked = {}, [], cancelling.asked
            for out in outgoing.values():
                self._append(out, now_ms)
        finally:
            self.is_gathering = False

    def _deliver_frame(
        self, due: Due, piece: memoryview, outgoing: dict[Partition, Outgoing], now_ms: int
    ) -> Generator[Load | None, Any, None]:
        _, number, base = due
        source = self.queues[number]
        origin = decode_origin(piece[:ORIGIN_BYTES])
        relay = self.relays.get(source.topic.name)
        if relay is not None:
            yield from self._decide(relay, number, base, piece[ORIGIN_BYTES:], origin)
            del self._taken[due]  # it is in the wheel again, if it waits on
            return
        try:
            target = self._broker.catalog.partition(origin.topic_number, origin.partition)
            if target is None:
                self._bury(source, base, piece[ORIGIN_BYTES:], origin, now_ms)
            else:
                out = outgoing.get(target)
                if out is None:
                    out = outgoing[target] = Outgoing(target)
                self._gather(out, source, base, piece[ORIGIN_BYTES:], now_ms)
                if now_ms < self._one_by_one_until_ms:
                    self._append(out, now_ms)
        except BrokerError as error:
            self._hold_up(error, source, base)
            self._times.add(now_ms + RETRY_MS, number, base)
        yield None

    def _hold_up(self, error: BrokerError, source: Partition, offset: int) -> None:
        """What stops one message stops no other. Raises the error again where it has stopped all of them."""
        if error.fault is Fault.KAFKA_STORAGE_ERROR:
            raise error
        self._broker.logger.error("event=delivery_failed from=%r offset=%d error=%s", source, offset, error)

    def _read(self, due: list[Due]) -> Generator[Load | None, Any, list[memoryview | None]]:
        """Of each of which something waits still, its origin and its batch, one behind the other, as they stand in the
        log."""
        places: list[tuple[int, int, int]] = []
        for at, (_, number, base) in enumerate(due):
            queue, pending = self.queues[number].queue, self.queues[number].pending
            if pending is None or (base not in pending and not pending.count(base, base + queue.span_at(base))):
                continue
            found = [] if queue.damage_at(base) else queue.places(base, 1, min_one=True)
            if found:
                position, length = found[0]
                places.append((position - ORIGIN_BYTES, length + ORIGIN_BYTES, at))
        places.sort()
        read = self._broker.reader.read([(position, length) for position, length, _ in places])
        slices = read.slices if read.cold is None else (yield read.cold)
        pieces: list[memoryview | None] = [None] * len(due)
        for (_, _, at), piece in zip(places, slices, strict=True):
            pieces[at] = memoryview(piece)
        return pieces

    def _gather(self, out: Outgoing, source: Partition, base: int, batch: memoryview, now_ms: int) -> None:
        pending = source.pending
        assert pending is not None
        header = parse_header(batch)
        if header.base_offset != base:
            return  # it has gone with its segment
        codec = header.attributes & CODEC_MASK
        count = header.record_count
        if self._broker.state.cancels.cancels:
            self._broker.cancelling.settle_among(out.target.topic, source, base, batch)
        if count >= WHOLE_RECORDS and count == header.last_offset_delta + 1 == pending.count(base, base + count):
            self._append(out, now_ms)
            out.take_whole(source, base, header, batch[HEADER_BYTES:])
            self._append(out, now_ms)
            return
        if out.codec != codec:
            self._append(out, now_ms)
            out.codec = codec
        body = bytes(batch_body(batch))
        for record in iter_records(batch):
            if base + record.offset_delta in pending:
                if out.is_full:
                    self._append(out, now_ms)
                out.take(source, base + record.offset_delta, body, record)

    def _append(self, out: Outgoing, now_ms: int) -> None:
        """With the time of the delivery, by the broker's clock, as the batch says then."""
        if out.is_empty:
            return
        batch = out.batch()
        header = parse_header(batch)
        set_log_append_time(memoryview(batch), now_ms)
        self._broker.append_relayed(out.target, batch, sources=out.sources())
        self.delivered += header.record_count
        out.begin()

    # -- relays ------------------------------------------------------------------------------------------------------

    def _decide(
        self, relay: Relay, number: int, base: int, batch: memoryview, origin: Origin
    ) -> Generator[Load | None, Any, None]:
        """Ask about each message of a frame, and do as it says. The frame is in the wheel again if one waits on."""
        source = self.queues[number]
        header = parse_header(batch)
        if header.base_offset != base:
            return
        look_again_ms: int | None = None
        for at, (offset, record) in enumerate(self._records(source, header, batch)):
            message = self._waiting_message(source, offset, record, origin)
            due_ms = self._do(relay, source, message)
            if due_ms is not None:
                look_again_ms = min(due_ms, look_again_ms or due_ms)
            if at % DECIDED == DECIDED - 1:
                yield None
        if look_again_ms is not None:
            self._times.add(look_again_ms, number, base)
        yield None

    def _do(self, relay: Relay, source: Partition, message: Waiting) -> int | None:
        """Ask about a message, and do as it says; when to ask again, if it waits on."""
        try:
            decision = relay.decide(message)
        except Exception:
            self._broker.logger.exception("event=relay_failed relay=%s topic=%s", relay.name, message.topic)
            return message.now_ms + RETRY_MS
        try:
            if isinstance(decision, PutOff):
                self._put_off(source, message, decision)
                return decision.due_ms
            if isinstance(decision, Settle):
                self._settle(source, message, decision)
            else:
                for out in self.release([(source, message.offset)], message.now_ms):
                    self._append(out, message.now_ms)
        except BrokerError as error:
            if relay.begin is not None:  # it has counted on what it decided
                relay.begin(message)
            self._hold_up(error, source, message.offset)
            return message.now_ms + RETRY_MS
        return None

    def _put_off(self, source: Partition, message: Waiting, decision: PutOff) -> None:
        run = SourceRun(source.topic.number, source.index, message.offset, message.attempts + 1)
        if decision.topic is not None:
            batch = _copy(message, decision.headers)
            self._broker.append_relayed(self._broker.first_partition(decision.topic), batch, attempts=[run])
        else:
            self._broker.catalog.prove(Provenance(attempts=(run,)))

    def _settle(self, source: Partition, message: Waiting, decision: Settle) -> None:
        run = SourceRun(source.topic.number, source.index, message.offset, 1)
        if decision.topic is not None:
            batch = _copy(message, decision.headers)
            self._broker.append_relayed(self._broker.first_partition(decision.topic), batch, sources=[run])
        else:
            self._broker.append_control(control.Settled([(run.topic_number, run.partition, run.first_offset)]))

    def release(self, places: Iterable[tuple[Partition, int]], now_ms: int) -> list[Outgoing]:
        """The batches that waiting messages become when they are delivered, by where they go, in the order they wait
        in; nothing is appended. What is lost to rot is left out.

        Raises BrokerError(MESSAGE_TOO_LARGE) where they are too much to be held in memory together.
        """
        outgoing: dict[Partition, Outgoing] = {}
        full: list[Outgoing] = []
        size = 0
        frame: _Frame | None = None
        for source, offset in sorted(places, key=lambda place: (place[0].topic.number, place[0].index, place[1])):
            if frame is None or not frame.holds(source, offset):
                try:
                    frame = _Frame(source, *self.look_up(source, offset))
                except LookupError as error:
                    self._broker.logger.error("event=delivery_failed error=%s", error)
                    continue
            origin = frame.origin
            target = self._broker.catalog.partition(origin.topic_number, origin.partition)
            if target is None:
                target = self._broker.first_partition(UNDELIVERABLE)
                self.lost_targets += 1
            out = outgoing.get(target)
            if out is not None and out.is_full:
                full.append(out)
                out = None
            if out is None:
                out = outgoing[target] = Outgoing(target)
            record = frame.extent(offset)
            size += record.end - record.start
            if size > RELEASED_BYTES and size > record.end - record.start:
                raise BrokerError(
                    Fault.MESSAGE_TOO_LARGE,
                    f"messages of more than {RELEASED_BYTES >> 20} MiB would be delivered at once",
                )
            out.take(source, offset, frame.body, record)
        return [*full, *outgoing.values()]

    def _bury(self, source: Partition, base: int, batch: memoryview, origin: Origin, now_ms: int) -> None:
        """The topic that these messages were sent to is gone: they go to the dead letters, and say why."""
        pending = source.pending
        assert pending is not None
        name = self._broker.catalog.name_of(origin.topic_number)
        why = (
            ("halfmoon.reason", f"topic '{name}' was deleted before the message was due".encode()),
            ("halfmoon.original-topic", name.encode()),
            ("halfmoon.original-partition", str(origin.partition).encode()),
        )
        records = [record for record in iter_records(batch) if base + record.offset_delta in pending]
        for at in range(0, len(records), MERGE_RECORDS):
            part = records[at : at + MERGE_RECORDS]
            made = build_batch((record.key, record.value, now_ms, (*record.headers, *why)) for record in part)
            runs = [SourceRun(source.topic.number, source.index, base + record.offset_delta, 1) for record in part]
            self._broker.append_relayed(self._broker.first_partition(UNDELIVERABLE), bytearray(made), sources=runs)
            self.lost_targets += len(part)


class _Frame:
    """A frame of waiting messages, of which single ones are asked for. Its offsets have no holes."""

    __slots__ = ("_base_ms", "_bounds", "_first", "_source", "body", "origin")

    def __init__(self, source: Partition, origin: Origin, header: BatchHeader, batch: memoryview) -> None:
        self._source = source
        self._first = header.base_offset
        self._base_ms = header.base_timestamp
        self.origin = origin
        self.body = bytes(batch_body(batch))
        self._bounds = record_codec.walk(self.body, header.record_count)

    def holds(self, source: Partition, offset: int) -> bool:
        return source is self._source and 0 <= offset - self._first < len(self._bounds) - 1

    def extent(self, offset: int) -> Extent:
        """Of a message of it."""
        index = offset - self._first
        start, end = self._bounds[index], self._bounds[index + 1]
        _, timestamp = record_codec.glance(self.body, start, index, self._base_ms)
        return Extent(timestamp, start, end)


def _copy(message: Waiting, headers: Headers) -> bytearray:
    """A batch of the message alone, with more headers."""
    record = message.record
    return bytearray(build_batch([(record.key, record.value, message.now_ms, (*record.headers, *headers))]))
