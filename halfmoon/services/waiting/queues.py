"""The queues in which messages wait, and the timing wheel that is made from them (B29).

A consume queue holds when each of its messages is due. The wheel follows the queues as they grow, and at a start takes
in what stands in them already. What is due when, and what relays have been told, is nothing that has to be kept: it is
made again from what is pending.

Messages that wait in a topic of a plugin that is off wait on, until it is on again: what is to become of them, only the
plugin knows.
"""

from __future__ import annotations

from collections.abc import Collection, Generator
from typing import Any

from msgspec import Struct

from halfmoon.core.catalog.catalog import Catalog
from halfmoon.core.catalog.topics import Partition, Topic
from halfmoon.core.relay import Load
from halfmoon.core.steps import Slices
from halfmoon.errors import TakesLongError
from halfmoon.services.waiting.deciding import Deciding
from halfmoon.services.waiting.due_clock import DueClock
from halfmoon.services.waiting.due_times import MAX_QUEUES
from halfmoon.services.waiting.schedule import Schedule
from halfmoon.services.waiting.state import AttemptsState

FOLLOWED = 2_000
"""Rows of a consume queue that are looked at between two pauses: 1 ms."""
AT_ONCE = 100
"""Messages that are taken in at once where somebody asks for them."""
TOLD = 20
"""The same where a relay is told of the messages, and so these are read."""


Taken = Generator["Load | None", Any, bool]


class _Earlier(Struct):
    number: int
    """Of the queue."""
    begin: int
    end: int


class WaitingQueues:
    def __init__(self, catalog: Catalog, deciding: Deciding, attempts: AttemptsState, clock: DueClock) -> None:
        self._catalog = catalog
        self._deciding = deciding
        self._attempts = attempts
        self._clock = clock
        self.claimed: Collection[str] = ()
        """Internal topics of which an interceptor, or a relay, has said that its messages wait there."""
        self.held: list[Partition] = []
        """Partitions of other topics in which messages wait: they wait on."""
        self.by_wall: Collection[tuple[str, int]] = ()
        """Queues of these topics in which messages wait for a time of the wall clock."""
        self.times = Schedule(clock)
        self.queues: list[Partition] = []
        """Partitions in which messages wait; a number in the wheel is a place in this list."""
        self.followed: dict[Partition, int] = {}
        """Offset up to which the wheel has followed the consume queue."""
        self._known: dict[Partition, tuple[int, int]] = {}
        """Offsets [from, to) of messages that their relay knows of, because it has put them there."""
        self._earlier: list[_Earlier] = []
        """What was there at the start, and is still to be taken in."""

    def start(self) -> None:
        """What comes from now on does not wait for what is there."""
        for partition in self._catalog.partitions():
            if partition.pending is None:
                continue
            if partition.topic.name not in self.claimed:
                self.held.append(partition)
            else:
                self._add(partition, partition.queue.end_offset)
                self._earlier.append(_Earlier(len(self.queues) - 1, partition.start_offset, partition.queue.end_offset))
        # Those whose relay is to be told of them come first.
        self._earlier.sort(key=lambda earlier: self._deciding.relay_of(self.queues[earlier.number]) is not None)

    def waits_in(self, partition: Partition, offset: int = 0, known: int = 0) -> None:
        """Messages begin to wait in this partition. Its relay is not told of the `known` ones from `offset` on."""
        if partition.topic.name not in self.claimed:
            return
        if partition not in self.followed:
            self._add(partition, partition.start_offset)
        if known:
            first, last = self._known.get(partition, (0, 0))
            # Others may have come in between. Then the relay is told of those before, too, which does no harm.
            self._known[partition] = first if last == offset else offset, offset + known

    def _add(self, partition: Partition, offset: int) -> None:
        assert len(self.queues) < MAX_QUEUES
        self.queues.append(partition)
        self.followed[partition] = offset
        if (partition.topic.name, partition.index) in self.by_wall:
            self.times.is_by_wall(len(self.queues) - 1)

    def waiting(self) -> int:
        """Messages that wait."""
        return sum(self.waiting_in().values())

    def waiting_in(self) -> dict[str, int]:
        """Messages that wait, by the internal topic."""
        counts: dict[str, int] = {}
        for partition in (*self.queues, *self.held):
            name = partition.topic.name
            counts[name] = counts.get(name, 0) + (0 if partition.pending is None else len(partition.pending))
        return counts

    def warnings(self) -> list[str]:
        """A sentence for each topic whose messages wait on, since their plugin is off."""
        counts: dict[str, int] = {}
        for partition in self.held:
            if partition.pending:
                name = partition.topic.name
                counts[name] = counts.get(name, 0) + len(partition.pending)
        return [
            f"{count} scheduled messages in topic {name} wait for a plugin that is off"
            for name, count in counts.items()
        ]

    # -- filling the wheel -------------------------------------------------------------------------------------------

    # Some of the following are steps of a mover, which fail with OSError where a relay is to be told of messages that
    # cannot be read. Then nothing is lost: what a relay was not told of is not passed.

    def follow(self, number: int, *, at_once: bool = False) -> Taken:
        """Take in some of what has come into a queue since the last time; whether there was anything. `at_once`: as of
        `Deciding.tell`."""
        partition = self.queues[number]
        begin, end = self.followed[partition], partition.queue.end_offset
        if begin >= end:
            return False
        upto = self._take_in(number, begin, end)
        yield from self._tell(partition, begin, upto, at_once=at_once)
        self.followed[partition] = max(self.followed[partition], upto)
        return True

    @property
    def left(self) -> int:
        """Queues of which not all that was there at the start is taken in."""
        return len(self._earlier)

    def make_up(self) -> Taken:
        """Take in some of what was there at the start; whether there was any left. A queue that fails is the last to
        come again."""
        while self._earlier:
            earlier = self._earlier[-1]
            try:
                if (yield from self._take_in_earlier(earlier)):
                    return True
            except OSError:
                self._earlier.remove(earlier)
                self._earlier.insert(0, earlier)
                raise
            self._earlier.remove(earlier)
        return False

    def catch_up(self, topic: Topic) -> None:
        """Take in all that stands in a topic's queues, now: somebody asks for one of its messages. Raises
        NotHereYetError, and TakesLongError where there is much, as after a start."""
        if not self._earlier and self._is_taken_in(topic):
            return
        if self._left_of(topic) > AT_ONCE:
            raise TakesLongError(lambda _: self._catch_up_in_slices(topic))
        for partition in topic.partitions:
            if partition in self.followed:
                number = self.queues.index(partition)
                for earlier in self._earlier:
                    if earlier.number == number:
                        while _now(self._take_in_earlier(earlier, at_once=True)):
                            pass
                while _now(self.follow(number, at_once=True)):
                    pass

    def _is_taken_in(self, topic: Topic) -> bool:
        """Whether nothing has come into its queues since."""
        followed = self.followed
        for partition in topic.partitions:
            if partition in followed and followed[partition] < partition.queue.end_offset:
                return False
        return True

    def _left_of(self, topic: Topic) -> int:
        """Offsets of a topic that are still to be taken in."""
        left = sum(
            each.end - each.begin
            for each in self._earlier
            if each.begin < each.end and self.queues[each.number].topic is topic
        )
        return left + sum(
            partition.queue.end_offset - self.followed[partition]
            for partition in topic.partitions
            if partition in self.followed
        )

    def _catch_up_in_slices(self, topic: Topic) -> Slices[None]:
        """Beside the mover, which does the same: to tell a relay twice of a message does no harm."""
        for partition in topic.partitions:
            if partition in self.followed:
                number = self.queues.index(partition)
                for earlier in [each for each in self._earlier if each.number == number]:
                    while (yield from self._take_in_earlier(earlier, at_once=False)):
                        yield None
                while (yield from self.follow(number)):
                    yield None

    def _take_in_earlier(self, earlier: _Earlier, *, at_once: bool = False) -> Taken:
        begin = earlier.begin
        if begin >= earlier.end:
            return False
        upto = self._take_in(earlier.number, begin, earlier.end, at_start=True)
        yield from self._tell(self.queues[earlier.number], begin, upto, at_once=at_once)
        earlier.begin = max(earlier.begin, upto)
        return True

    def _tell(self, partition: Partition, begin: int, end: int, *, at_once: bool) -> Generator[Load | None, Any, None]:
        known = self._known.get(partition, (0, 0))
        return self._deciding.tell(partition, begin, end, known, at_once=at_once)

    def _take_in(self, number: int, begin: int, end: int, *, at_start: bool = False) -> int:
        """Put what waits in [begin, end) of a queue into the wheel, as far as it can be done at once; up to where."""
        partition = self.queues[number]
        relay = self._deciding.relay_of(partition)
        attempts = self._attempts.attempts if relay is not None and at_start else {}
        again_ms = 0 if relay is None else self._clock.wall_ms() + relay.pause_ms
        pending = partition.pending
        begin = max(begin, partition.start_offset)
        run = next((run for run in partition.queue.runs_from(begin) if run.end_offset > begin), None)
        if run is None or pending is None:
            return end
        columns, row = run.columns, run.row_for(begin)
        upto = min(run.high, row + (FOLLOWED if relay is None else TOLD))
        add = self.times.add
        for at in range(row, upto):
            base, span = columns.base[at], columns.span[at]
            if base >= end:  # the run has grown since
                return end
            if base in pending or (span > 1 and any(pending.between(base, base + span))):
                due_ms = columns.max_ms[at]
                if attempts and (partition.topic.number, partition.index, base) in attempts:
                    due_ms = max(due_ms, again_ms)  # it was rescheduled; until when, nobody wrote down
                add(due_ms, number, base, at_start=at_start)
        return columns.base[upto - 1] + columns.span[upto - 1]


def _now(steps: Taken) -> bool:
    """What they return. They are `at_once`, and yield nothing."""
    try:
        next(steps)
    except StopIteration as done:
        return bool(done.value)
    raise AssertionError("it should not wait")
