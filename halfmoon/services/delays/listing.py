"""Listing and counting scheduled messages: of a stretch of rows, those that are due first, or how many there are for
each topic.

A list takes no more memory than what it tells: once it has enough, rows that are due later are not looked at. So a
million waiting messages cost a second of the loop's time, in slices, and few reads.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from msgspec.structs import replace

from halfmoon.core.catalog.catalog import Catalog
from halfmoon.core.clock import Clock
from halfmoon.core.records.record_codec import Record
from halfmoon.core.steps import Slices
from halfmoon.errors import BrokerError, Fault
from halfmoon.services.delays.frames import STRETCH, Frame, Frames, Whole, Window, pending_in, together
from halfmoon.services.delays.questions import (
    MOST,
    Count,
    Counted,
    Cursor,
    Id,
    List,
    Listed,
    ScheduledCount,
    ScheduledMessage,
    format_id,
    parse_id,
)
from halfmoon.services.delays.targets import LAST_MS, Allows, Target, Targets, window

MOST_BYTES = 2 << 20
"""Keys of all messages of an answer together."""
RECORDS = 64
"""Records that are read between two pauses."""

UNIQ_KEY: Final = "UNIQ_KEY"
ASKED: Final = "halfmoon.delayed"
PRODUCED_MS: Final = "halfmoon.original-timestamp"
ORIGIN: Final = "ORIGIN_MESSAGE_ID"
ATTEMPTS: Final = "RECONSUME_TIME"
"""Headers that delays and retries leave with a message (docs/delays.md, docs/retry.md)."""

Order = tuple[int, str, int, int]
"""Due time, topic and partition of the queue, offset."""


class _Candidate(NamedTuple):
    order: Order
    """Of its first message."""
    frame: Frame
    target: Target
    message: ScheduledMessage | None
    """Of a batch whose messages have times of their own, one; None: all messages of the frame."""


class _Earliest:
    """The first `most` candidates by order, and not many more."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._found: list[_Candidate] = []
        self.cut = False
        """Some were left out."""
        self.last_ms = LAST_MS
        """What is due later is not among them."""

    def add(self, candidate: _Candidate) -> None:
        if candidate.order[0] > self.last_ms:
            self.cut = True
            return
        self._found.append(candidate)
        if len(self._found) >= 2 * self._most:
            self._cut()

    def _cut(self) -> None:
        self._found.sort(key=lambda candidate: candidate.order)
        if len(self._found) > self._most:
            del self._found[self._most :]
            self.cut = True
        if len(self._found) == self._most:
            self.last_ms = self._found[-1].order[0]

    def all(self) -> list[_Candidate]:
        self._cut()
        return self._found


class Listing:
    def __init__(self, catalog: Catalog, frames: Frames, clock: Clock) -> None:
        self._catalog = catalog
        self._frames = frames
        self._clock = clock

    def first(self, question: List, describes: Allows, reads: Allows) -> Slices[Listed]:
        """`reads`: whether keys and headers may be told. Raises BrokerError, OSError."""
        if not 1 <= question.most <= MOST:
            raise BrokerError(Fault.INVALID_REQUEST, f"a list has between 1 and {MOST} messages")
        targets = Targets(self._catalog, question.selection, describes)
        shard = self._catalog.shard
        shows = _Shows(0 if shard is None else shard.number, shard is not None, reads)
        after = _behind(question, shows.shard)
        wanted = window(question.selection, self._clock.wall_ms())
        wanted = Window(max(wanted.from_ms, after[0]), wanted.to_ms)
        earliest = _Earliest(question.most)
        queues, rows = self._frames.queues(), 0
        at: Cursor | None = question.next or Cursor(shows.shard)
        while at is not None and rows < STRETCH:
            frames, looked, at = self._frames.look(queues, at, wanted, LAST_MS)
            rows += looked
            late = [frame for frame in frames if frame.due_ms > earliest.last_ms]
            earliest.cut |= bool(late)
            for head in (yield from self._frames.heads([each for each in frames if each.due_ms <= earliest.last_ms])):
                target = targets.of(head.origin.topic_number)
                if target is None:
                    continue
                if head.own_times:
                    yield from self._add_each(earliest, head.frame, target, wanted, after, shows)
                elif head.frame.due_ms in wanted:
                    frame = head.frame
                    if _order(frame, frame.base + frame.span - 1, frame.due_ms) > after:
                        earliest.add(_Candidate(_order(frame, frame.base, frame.due_ms), frame, target, None))
            yield None
        messages, is_whole = yield from self._messages(earliest.all(), question.most, after, shows)
        return Listed(tuple(messages), earliest.cut or not is_whole, at)

    def _add_each(
        self, earliest: _Earliest, frame: Frame, target: Target, wanted: Window, after: Order, shows: _Shows
    ) -> Slices[None]:
        """Of a batch whose messages are due at times of their own."""
        for whole in (yield from self._frames.whole([frame])):
            for nth, (offset, due_ms, record) in enumerate(whole.waiting(), 1):
                order = _order(frame, offset, due_ms)
                if due_ms in wanted and order > after:
                    message = shows.message(frame, target, offset, due_ms, record, whole.origin.partition)
                    earliest.add(_Candidate(order, frame, target, message))
                if nth % RECORDS == 0:
                    yield None

    def _messages(
        self, candidates: Sequence[_Candidate], most: int, after: Order, shows: _Shows
    ) -> Slices[tuple[list[ScheduledMessage], bool]]:
        """The first messages, and whether those are all."""
        found: list[ScheduledMessage] = []
        size = 0
        for some in together(candidates, lambda candidate: candidate.frame):
            frames = [candidate.frame for candidate in some if candidate.message is None]
            read = {whole.frame: whole for whole in (yield from self._frames.whole(frames))}
            for candidate in some:
                told = [candidate.message] if candidate.message is not None else []
                whole = read.get(candidate.frame)
                if candidate.message is None and whole is not None:
                    told = yield from self._of_frame(whole, candidate.target, after, shows)
                for message in told:
                    size += len(message.key or b"") + len(message.uniq_key or b"")
                    if len(found) == most or (found and size > MOST_BYTES):
                        return found, False
                    found.append(message)
            yield None
        return found, True

    def _of_frame(self, whole: Whole, target: Target, after: Order, shows: _Shows) -> Slices[list[ScheduledMessage]]:
        found = []
        for nth, (offset, due_ms, record) in enumerate(whole.waiting(), 1):
            if _order(whole.frame, offset, due_ms) > after:
                found.append(shows.message(whole.frame, target, offset, due_ms, record, whole.origin.partition))
            if nth % RECORDS == 0:
                yield None
        return found

    # -- counts --------------------------------------------------------------------------------------------------------

    def count(self, question: Count, describes: Allows) -> Slices[Counted]:
        """Raises BrokerError, OSError."""
        targets = Targets(self._catalog, question.selection, describes)
        wanted = window(question.selection, self._clock.wall_ms())
        counts: dict[Target, _Sum] = {}
        queues, rows = self._frames.queues(), 0
        at: Cursor | None = question.next or Cursor(0 if self._catalog.shard is None else self._catalog.shard.number)
        while at is not None and rows < STRETCH:
            frames, looked, at = self._frames.look(queues, at, wanted, LAST_MS)
            rows += looked
            for head in (yield from self._frames.heads(frames)):
                target = targets.of(head.origin.topic_number)
                if target is None:
                    continue
                sum = counts.get(target)
                if sum is None:
                    sum = counts[target] = _Sum()
                if not head.own_times:
                    if head.frame.due_ms in wanted:
                        sum.add(head.frame.due_ms, len(pending_in(head.frame)))
                    continue
                for whole in (yield from self._frames.whole([head.frame])):
                    for nth, (_, due_ms, _) in enumerate(whole.waiting(), 1):
                        if due_ms in wanted:
                            sum.add(due_ms, 1)
                        if nth % RECORDS == 0:
                            yield None
            yield None
        rows_of = [
            ScheduledCount(target.topic, target.kind, sum.count, sum.first_ms, sum.last_ms, target.group)
            for target, sum in counts.items()
            if sum.count
        ]
        return Counted(tuple(sorted(rows_of, key=lambda row: (row.kind, row.topic))), at)


class _Sum:
    """Of one target."""

    __slots__ = ("count", "first_ms", "last_ms")

    def __init__(self) -> None:
        self.count = 0
        self.first_ms, self.last_ms = LAST_MS, 0

    def add(self, due_ms: int, count: int) -> None:
        if count:
            self.count += count
            self.first_ms, self.last_ms = min(self.first_ms, due_ms), max(self.last_ms, due_ms)


class _Shows:
    """What is told of a message."""

    def __init__(self, shard: int, shards: bool, reads: Allows) -> None:
        self.shard = shard
        self._shards = shards
        self._reads = reads
        self._known: dict[Target, bool] = {}

    def _may_read(self, target: Target) -> bool:
        if target not in self._known:
            self._known[target] = self._reads(target.topic, target.group)
        return self._known[target]

    def message(
        self, frame: Frame, target: Target, offset: int, due_ms: int, record: Record, partition: int
    ) -> ScheduledMessage:
        """`partition`: that it goes to."""
        place = Id(self.shard, frame.partition.topic.name, frame.partition.index, offset)
        headers = dict(record.headers)
        known = ScheduledMessage(
            format_id(place, shards=self._shards), target.topic, partition, due_ms, target.kind,
            record.end - record.start, _number(headers.get(PRODUCED_MS), record.timestamp), target.group,
        )  # fmt: skip
        if not self._may_read(target):
            return replace(known, hidden=True)
        is_redelivery = target.group is not None
        return replace(
            known,
            key=record.key,
            uniq_key=headers.get(UNIQ_KEY),
            delay=_text(headers.get(ASKED)),
            origin=_text(headers.get(ORIGIN)) if is_redelivery else None,
            attempts=_number(headers.get(ATTEMPTS), 0) if is_redelivery else 0,
        )


def _behind(question: List, shard: int) -> Order:
    """What is told stands behind it. Raises BrokerError(INVALID_REQUEST)."""
    after = question.after
    if after is None:
        return -1, "", 0, 0
    place = parse_id(after.id)
    if place is None:
        raise BrokerError(Fault.INVALID_REQUEST, f"{after.id!r} is no id of a scheduled message")
    if place.shard != shard:
        # Of messages that are due at the same time those of earlier shards come first.
        return after.due_ms + (shard < place.shard), "", 0, -1
    return after.due_ms, place.topic, place.partition, place.offset


def _order(frame: Frame, offset: int, due_ms: int) -> Order:
    return due_ms, frame.partition.topic.name, frame.partition.index, offset


def _number(content: bytes | None, default: int) -> int:
    return int(content) if content is not None and content.isdigit() and len(content) < 19 else default


def _text(content: bytes | None) -> str | None:
    return None if content is None else content.decode("utf-8", "backslashreplace")
