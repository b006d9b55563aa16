"""Cancelling scheduled messages, and giving them another time.

A cancelled message is completed by a control record. A rescheduled one is in a new frame that completes the old one
(services/waiting/rescheduling.py). Neither happens while what is due is being delivered: whoever has read messages is
about to append them. So a message is delivered, cancelled or rescheduled, and never two of these.

A reschedule leaves messages alone that have come since it began: else it would meet its own again. A cancel does not:
it also meets what the broker has moved to a newer segment meanwhile.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from halfmoon.core.catalog.catalog import Catalog
from halfmoon.core.clock import Clock
from halfmoon.core.steps import Slices
from halfmoon.core.storage.storage import WriteSide
from halfmoon.errors import BrokerError, Fault
from halfmoon.services.delays.frames import Frame, Frames, Head, Whole, Window, frame_at, pending_in, together
from halfmoon.services.delays.ports import Moved, WaitingMessages
from halfmoon.services.delays.questions import MOST, Cancel, Changed, Cursor, Id, Reschedule, Selection, parse_id
from halfmoon.services.delays.targets import LAST_MS, Allows, Targets, window

AT_ONCE = 5_000
"""About so many messages are changed by one question."""
STRETCH = 50_000
"""Rows that one question looks at."""
COMPLETED = 250
"""Messages that are completed between two pauses."""
RECORDS = 20
"""Records that are appended again between two pauses."""
EVERYTHING = Window(0, LAST_MS)

MOST_MS = 1 << 53

Place = tuple[int, int, int]
"""Topic number, partition, offset."""


class _Tally:
    """What has become of one question."""

    __slots__ = ("count", "dealt_with", "missing", "too_far", "topics")

    def __init__(self) -> None:
        self.count = self.too_far = 0
        self.missing: list[str] = []
        self.topics: set[str] = set()
        """That changed messages go to."""
        self.dealt_with: set[Place] = set()
        """Messages that were named, and were changed or would be due too late."""


class _Times:
    """When rescheduled messages are due."""

    def __init__(self, question: Reschedule, now_ms: int) -> None:
        """Raises BrokerError(INVALID_REQUEST)."""
        given = [each for each in (question.at_ms, question.in_ms, question.by_ms) if each is not None]
        if len(given) != 1 or not -MOST_MS <= given[0] <= MOST_MS:
            raise BrokerError(Fault.INVALID_REQUEST, "one time is required: at, in, or by")
        self._now_ms = now_ms
        self._at_ms = question.at_ms if question.in_ms is None else now_ms + question.in_ms
        self._by_ms = question.by_ms or 0

    def of(self, due_ms: int, most_ms: int | None) -> int | None:
        """Of a message that was due then and may be due in `most_ms` from now at most; None: it would be due later."""
        at_ms = due_ms + self._by_ms if self._at_ms is None else self._at_ms
        if most_ms is not None and at_ms - self._now_ms > most_ms:
            return None
        return max(at_ms, 1)  # the log has 0 for a message that does not wait


class Changing:
    def __init__(
        self, log: WriteSide, catalog: Catalog, frames: Frames, waiting: WaitingMessages, clock: Clock
    ) -> None:
        self._log = log
        self._catalog = catalog
        self._frames = frames
        self._waiting = waiting
        self._clock = clock

    def change(self, question: Cancel | Reschedule, describes: Allows, may: Allows) -> Slices[Changed]:
        """`may`: change the messages of a topic. What is told is durable once the log is, up to its end of then. Raises
        BrokerError, OSError; some may be changed then."""
        times = _Times(question, self._clock.wall_ms()) if isinstance(question, Reschedule) else None
        if (question.selection is None) == (not question.ids):
            raise BrokerError(Fault.INVALID_REQUEST, "either ids or a selection is required")
        targets = Targets(self._catalog, question.selection or Selection(), describes, may)
        tally = _Tally()
        next: Cursor | None = None
        if question.selection is None:
            yield from self._by_ids(question.ids, times, targets, tally)
        else:
            next = yield from self._selected(question.selection, question.next, times, targets, tally)
        return Changed(
            tally.count, tuple(tally.missing), tuple(sorted(targets.refused)), tuple(sorted(tally.topics)),
            tally.too_far, next,
        )  # fmt: skip

    # -- of all that are selected --------------------------------------------------------------------------------------

    def _selected(
        self, selection: Selection, begin: Cursor | None, times: _Times | None, targets: Targets, tally: _Tally
    ) -> Slices[Cursor | None]:
        """Where to go on. The first question of a reschedule only says how far the log goes: one that is asked twice
        must not meet what it has written before."""
        wanted = window(selection, self._clock.wall_ms())
        shard = self._catalog.shard
        at: Cursor | None = begin or Cursor(0 if shard is None else shard.number)
        assert at is not None
        if times is not None and at.upto < 0:
            return replace(at, upto=self._log.end)
        upto = LAST_MS if times is None else at.upto
        queues, rows = self._frames.queues(), 0
        while at is not None and rows < STRETCH and tally.count < AT_ONCE:
            frames, looked, at = self._frames.look(queues, at, wanted, upto)
            rows += looked
            heads = yield from self._frames.heads(frames)
            heads = [head for head in heads if targets.of(head.origin.topic_number) is not None]
            yield from self._change(heads, wanted, None, times, tally)
            yield None
        return at

    # -- of these ------------------------------------------------------------------------------------------------------

    def _by_ids(
        self, ids: Sequence[str], times: _Times | None, targets: Targets, tally: _Tally
    ) -> Slices[None]:  # fmt: skip
        if len(ids) > MOST:
            raise BrokerError(Fault.INVALID_REQUEST, f"more than {MOST} ids")
        places: dict[Id, str] = {}
        for text in ids:
            place = parse_id(text)
            if place is None:
                raise BrokerError(Fault.INVALID_REQUEST, f"{text!r} is no id of a scheduled message")
            places[place] = text
        queues = {(queue.topic.name, queue.index): queue for queue in self._frames.queues()}
        shard = self._catalog.shard
        frames: dict[Frame, list[tuple[Id, Place]]] = {}
        for nth, each in enumerate(sorted(places), 1):
            queue = queues.get((each.topic, each.partition))
            here = each.shard == (0 if shard is None else shard.number)
            frame = frame_at(queue, each.offset) if here and queue is not None else None
            if frame is None:
                tally.missing.append(places[each])
            else:
                where = frame.partition.topic.number, frame.partition.index, each.offset
                frames.setdefault(frame, []).append((each, where))
            if nth % COMPLETED == 0:
                yield None
        heads = {head.frame: head for head in (yield from self._frames.heads(list(frames)))}
        selected: list[Head] = []
        for frame, wanted in frames.items():
            head = heads.get(frame)
            if head is not None and targets.of(head.origin.topic_number) is not None:
                selected.append(head)
            elif head is not None and targets.refuses(head.origin.topic_number):
                tally.dealt_with.update(where for _, where in wanted)
        named = {where for wanted in frames.values() for _, where in wanted} - tally.dealt_with
        yield from self._change(selected, EVERYTHING, named, times, tally)
        tally.missing += [
            places[each] for wanted in frames.values() for each, where in wanted if where not in tally.dealt_with
        ]

    # -- both ----------------------------------------------------------------------------------------------------------

    def _change(
        self, heads: Sequence[Head], wanted: Window, named: set[Place] | None, times: _Times | None, tally: _Tally
    ) -> Slices[None]:
        """What waits in these frames, if it is due in the window, and `named` where that is not None."""
        if times is None:
            yield from self._cancel(heads, wanted, named, tally)
        else:
            yield from self._reschedule(heads, wanted, named, times, tally)

    def _cancel(
        self, heads: Sequence[Head], wanted: Window, named: set[Place] | None, tally: _Tally
    ) -> Slices[None]:  # fmt: skip
        places: dict[Place, int] = {}
        """By the topic that they go to."""
        for head in heads:
            number, index = head.frame.partition.topic.number, head.frame.partition.index
            if head.own_times:
                for whole in (yield from self._frames.whole([head.frame])):
                    offsets = [offset for offset, due_ms, _ in whole.waiting() if due_ms in wanted]
            else:
                offsets = pending_in(head.frame) if head.frame.due_ms in wanted else []
            for offset in offsets:
                if named is None or (number, index, offset) in named:
                    places[number, index, offset] = head.origin.topic_number
        left = list(places)
        for at in range(0, len(left), COMPLETED):
            yield from self._nobody_gathers()
            some = [place for place in left[at : at + COMPLETED] if self._waits(place)]
            if some:
                self._waiting.complete(some)
                tally.count += len(some)
                tally.topics.update(map(self._catalog.name_of, {places[place] for place in some}))
                tally.dealt_with.update(some if named is not None else ())
            yield None

    def _reschedule(
        self, heads: Sequence[Head], wanted: Window, named: set[Place] | None, times: _Times, tally: _Tally
    ) -> Slices[None]:
        since = 0
        for frames in together([head.frame for head in heads], lambda frame: frame):
            for whole in (yield from self._frames.whole(frames)):
                partition = whole.frame.partition
                number, index, most_ms = (
                    partition.topic.number,
                    partition.index,
                    self._waiting.most_ms(partition.topic.name),
                )
                moved: list[Moved] = []
                for offset, due_ms, record in whole.waiting():
                    if due_ms not in wanted or (named is not None and (number, index, offset) not in named):
                        continue
                    at_ms = times.of(due_ms, most_ms)
                    if at_ms is None:
                        tally.too_far += 1
                        tally.dealt_with.update([(number, index, offset)] if named is not None else ())
                        continue
                    moved.append((offset, at_ms, record))
                    since += 1
                    if since >= RECORDS:
                        since = 0
                        yield from self._append(whole, moved, named is not None, tally)
                        moved = []
                        yield None
                yield from self._append(whole, moved, named is not None, tally)

    def _append(
        self, whole: Whole, moved: Sequence[Moved], named: bool, tally: _Tally
    ) -> Slices[None]:  # fmt: skip
        if not moved:
            return
        yield from self._nobody_gathers()
        partition = whole.frame.partition
        pending = partition.pending
        some = [each for each in moved if pending is not None and each[0] in pending]
        count = self._waiting.reschedule(partition, whole.origin, whole.batch, some)
        if count:
            tally.count += count
            tally.topics.add(self._catalog.name_of(whole.origin.topic_number))
        if named:
            tally.dealt_with.update((partition.topic.number, partition.index, each[0]) for each in some)

    def _nobody_gathers(self) -> Slices[None]:
        while self._waiting.is_gathering:  # somebody has read messages and is about to append them
            yield None

    def _waits(self, place: Place) -> bool:
        number, index, offset = place
        partition = self._catalog.partition(number, index)
        return partition is not None and offset in (partition.pending or ())
