"""Delivers waiting messages, when they are due, to where they were sent (B29, B30).

A waiting message stands in an internal topic; its consume queue holds when it is due, its frame where it was sent.
When their time has come, messages are read from the log, gathered by the partition they go to, and appended there with
the provenance of what they were (schema/provenance.py), which completes them. So each is delivered once, whatever
happens; and after a crash the timing wheel is made again from what is pending (services/waiting/queues.py).
"""

from __future__ import annotations

from collections.abc import Generator, Iterable
from typing import Any, Final

from halfmoon.core.catalog.catalog import Catalog
from halfmoon.core.catalog.topics import Partition
from halfmoon.core.records.batch_header import CODEC_MASK, HEADER_BYTES, OWN_TIMES
from halfmoon.core.records.batches import batch_body, iter_records, parse_header
from halfmoon.core.relay import Load, Relays
from halfmoon.errors import BrokerError
from halfmoon.schema.provenance import Origin
from halfmoon.services.common.gathering import Outgoing
from halfmoon.services.waiting.cancels import Cancels
from halfmoon.services.waiting.deciding import RETRY_MS, Deciding
from halfmoon.services.waiting.delivering import Delivering
from halfmoon.services.waiting.due_clock import DueClock
from halfmoon.services.waiting.due_times import Due
from halfmoon.services.waiting.expired import Expired
from halfmoon.services.waiting.messages import WaitingMessages
from halfmoon.services.waiting.queues import WaitingQueues

AT_ONCE: Final = 256
"""Frames of waiting messages that are read together."""
WHOLE_RECORDS: Final = 16
"""A batch of so many that are all due is delivered unchanged."""
ONE_BY_ONE_MS: Final = 1_000


class Deliveries:
    """A relay task (core/relay.py): all messages that wait for a time."""

    def __init__(
        self,
        relays: Relays,
        queues: WaitingQueues,
        messages: WaitingMessages,
        deciding: Deciding,
        delivering: Delivering,
        catalog: Catalog,
        clock: DueClock,
        cancels: Cancels,
        expired: Expired,
    ) -> None:
        self._relays = relays
        self._queues = queues
        self._messages = messages
        self._deciding = deciding
        self._delivering = delivering
        self._catalog = catalog
        self._clock = clock
        self._cancels = cancels
        self._expired = expired
        self._taken: dict[Due, None] = {}
        """Out of the wheel, and not completed yet."""
        self.is_gathering = False
        """Messages have been read that are about to be appended: nobody else may complete what is due."""
        self._one_by_one_until_ms = 0
        """Until then, no message is gathered over a pause."""

    def __str__(self) -> str:
        return "deliveries"

    def __len__(self) -> int:
        """How many frames wait."""
        return len(self._queues.times) + len(self._taken)

    def start(self) -> None:
        """Make the wheel, and deliver what became due meanwhile."""
        self._queues.start()
        self._relays.add(self, self)

    def arrived(self, partitions: Iterable[Partition]) -> None:
        """Messages became visible in these partitions, of which some may be ours."""
        followed = self._queues.followed
        if followed:
            for partition in partitions:
                if partition in followed:
                    self._relays.wake(self)
                    return

    # -- moving ------------------------------------------------------------------------------------------------------

    def run(self) -> Generator[Load | None, Any, None]:
        queues = self._queues
        for due in self._taken:  # the last run has failed on the way
            queues.times.put_back(due)
        self._taken = {}
        problem: OSError | None = None
        failed = 0
        while True:
            for number in range(len(queues.queues)):
                try:
                    while (yield from queues.follow(number)):
                        yield None
                except OSError as error:  # it holds up no other queue
                    problem = error
            yield from self._deliver_due()
            try:
                more = yield from queues.make_up()
            except OSError as error:
                problem = error
                failed += 1
                more = failed <= queues.left
            if not more:
                break
            yield None
        next_ms = queues.times.next_mono_ms()
        if next_ms is not None:
            self._relays.wake_at(self, next_ms)
        if problem is not None:
            raise problem

    def _deliver_due(self) -> Generator[Load | None, Any, None]:
        times = self._queues.times
        while True:
            while times.move_down():
                yield None
            # What is delivered is completed only when it is appended, so a frame may stand in the wheel twice.
            self._taken = dict.fromkeys(times.pop(AT_ONCE))
            if not self._taken:
                break
            yield from self._deliver(list(self._taken))
            self._taken = {}
            yield None

    def _deliver(self, due: list[Due]) -> Generator[Load | None, Any, None]:
        queues = self._queues.queues
        frames = yield from self._messages.read([(queues[number], base) for _, number, base in due])
        self.is_gathering = True
        cancels = self._cancels
        try:
            outgoing: dict[Partition, Outgoing] = {}
            gathered: list[Due] = []
            """In `outgoing`, or delivered already."""
            asked = cancels.asked
            for at, frame in zip(due, frames, strict=True):
                if isinstance(frame, OSError):
                    self._delivering.unreadable(frame, queues[at[1]], at[2])
                    self._queues.times.put_off(at, RETRY_MS)
                elif frame is None:  # completed already, or lost to corruption
                    self._queues.times.done(at[1], at[2])
                else:
                    if self._deciding.relay_of(queues[at[1]]) is None:
                        gathered.append(at)
                    yield from self._deliver_frame(at, *frame, outgoing)
                    if cancels.asked != asked:
                        # It may mean what was gathered so far: that is looked at again. Where messages are cancelled
                        # all the time nothing is gathered over a pause, or nothing would ever be delivered.
                        self._one_by_one_until_ms = self._clock.now_ms() + ONE_BY_ONE_MS
                        for each in gathered:
                            self._queues.times.put_back(each)
                        outgoing, gathered, asked = {}, [], cancels.asked
            for out in outgoing.values():
                self._delivering.append(out)
        finally:
            self.is_gathering = False

    def _deliver_frame(
        self, due: Due, origin: Origin, batch: memoryview, outgoing: dict[Partition, Outgoing]
    ) -> Generator[Load | None, Any, None]:
        _, number, base = due
        source, times = self._queues.queues[number], self._queues.times
        relay = self._deciding.relay_of(source)
        if relay is not None:
            look_again_ms = yield from self._deciding.decide(relay, source, base, batch, origin)
            times.done(number, base)
            if look_again_ms is not None:
                times.add(look_again_ms, number, base)
            del self._taken[due]  # it is in the wheel again, if it waits on
            yield None
            return
        try:
            target = self._catalog.partition(origin.topic_number, origin.partition)
            if target is None:
                self._delivering.write_dead_letters(source, base, batch, origin)
                times.done(number, base)
            else:
                out = outgoing.get(target)
                if out is None:
                    out = outgoing[target] = Outgoing(target)
                due_upto_ms = times.written_ms(times.now_ms(number), number, base)
                later_ms = self._gather(out, source, base, batch, due_upto_ms)
                if later_ms:
                    times.add_again(later_ms, number, base)
                else:
                    times.done(number, base)
                if self._clock.now_ms() < self._one_by_one_until_ms:
                    self._delivering.append(out)
        except BrokerError as error:
            self._delivering.failed(error, source, base)
            times.put_off(due, RETRY_MS)
        yield None

    def _gather(self, out: Outgoing, source: Partition, base: int, batch: memoryview, due_upto_ms: int) -> int:
        """When the next of it is due, where its records are due at times of their own; 0 if none is left. Those are due
        up to `due_upto_ms`."""
        pending, append = source.pending, self._delivering.append
        assert pending is not None
        header = parse_header(batch)
        if header.base_offset != base:
            return 0  # it has gone with its segment
        codec = header.attributes & CODEC_MASK
        count = header.record_count
        if self._cancels.any_open:
            self._cancels.complete_among(out.target.topic, source, base, batch)
        self._expired.complete_among(out.target, source, base, batch, due_upto_ms)
        own_times = header.attributes & OWN_TIMES
        all_due = not own_times or header.max_timestamp <= due_upto_ms
        whole = count == header.last_offset_delta + 1 == pending.count(base, base + count)
        if all_due and whole and count >= WHOLE_RECORDS:
            append(out)
            out.take_whole(source, base, header, batch[HEADER_BYTES:])
            append(out)
            return 0
        if out.codec != codec:
            append(out)
            out.codec = codec
        body = bytes(batch_body(batch))
        later_ms = 0
        for record in iter_records(batch):
            if base + record.offset_delta not in pending:
                continue
            if not all_due and record.timestamp > due_upto_ms:
                later_ms = min(record.timestamp, later_ms or record.timestamp)
                continue
            if out.is_full:
                append(out)
            out.take(source, base + record.offset_delta, body, record)
        return later_ms
