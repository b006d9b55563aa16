"""One partition as one share group sees it (KIP-932): who has which record, and which are finished.

    available → acquired → finished                 (accepted, rejected, given out too often, or no record: a gap)
        ↑          │     → rejected, exhausted      (where a dead letter is to be written; finished after that)
        └──────────┘       available → expired      (the same, where nobody had it before its TTL was over)
     released, lock timed out

`acquire` gives records out under a lock for some time and counts it; `acknowledge` says what became of them;
`release` and `expire` take them back. Records below `start` are finished. The rules are those of Kafka 4.3's
`kafka.server.share.SharePartition`, with these differences:

- The limit of record locks counts records that are not finished, not the distance from the first to the last of them.
  So one record that somebody holds for long does not hold up the others.
- Who is given a record again that has failed half as often as it may (from the second time on) is given fewer with it,
  and the last time it is given out alone, as in Kafka 4.3; but the number is halved from what was asked for, not from
  the size of the batch it first came in.
- An acknowledgement of what is finished already changes nothing and is no error, wherever the start is. Kafka refuses
  it above the start and lets it pass below.

It knows no clock, no disk and no other partition: times are monotonic milliseconds that the caller passes in, and what
a method returns is what is to be written down (`Saved`) before anyone is told. Control records and what was
aborted never get out: the caller passes over them first (`pass_over`). That alone is not written down: after a crash
they are met again. But what is written around them covers them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import NamedTuple

from halfmoon.core.steps import Pauses
from halfmoon.errors import BrokerError, Fault
from halfmoon.services.share.delivery_state import (
    ACQUIRED,
    AVAILABLE,
    DEAD_LETTER_PENDING,
    EXHAUSTED,
    EXPIRED,
    FINISHED,
    REJECTED,
    DeliveryState,
    Mark,
    Run,
    Saved,
    Settle,
)

GAP, ACCEPT, RELEASE, REJECT, RENEW = range(5)
"""What an acknowledgement says of an offset (`org.apache.kafka.clients.consumer.AcknowledgeType`)."""

FEWEST_FAILURES = 2
"""Whatever the limit, a record that has failed less often is given out with others."""


class Extent(NamedTuple):
    """A batch of the log: the offsets [first, end)."""

    first: int
    end: int


class Terms(NamedTuple):
    """What a group has configured (`options.py`)."""

    lock_ms: int = 30_000
    count_limit: int = 5
    max_locks: int = 2_000
    dead_letters: bool = True
    """Whether a letter is written for what is rejected or exhausted."""
    renew: bool = True


class Demand(NamedTuple):
    """What one fetch wants. `batch_records`: runs that are given out are cut where they have so many."""

    max_records: int
    batch_records: int
    exactly: bool = False
    """No more than `max_records`; else the last batch of the log is given out whole."""


class Acquired(NamedTuple):
    """The offsets [first, end), given out for the `deliveries`th time."""

    first: int
    end: int
    deliveries: int


class Acknowledgement(NamedTuple):
    """Of the offsets from `first` to `last`; `types` are one for all of them, or one for each."""

    first: int
    last: int
    types: Sequence[int]


Stretch = tuple[int, int, int]
"""The offsets [first, end), acknowledged with this type."""
READ_AT_ONCE = 256
"""Acknowledgements that are read from one pause to the next: a few tenths of a millisecond."""


class SharePartition(DeliveryState):
    __slots__ = ("next_deadline_ms",)

    def __init__(self, start: int, saved: Iterable[Saved] = ()) -> None:
        super().__init__(start, saved)
        self.next_deadline_ms: int | None = None
        """No lock ends before, but it may be that none ends then; None while nothing is acquired."""
        self.finish()

    # -- giving out ----------------------------------------------------------------------------------------------------

    @property
    def unfinished(self) -> int:
        """Records that were given out, or passed over, and are not finished."""
        return self.end - self.start - self.counts[FINISHED]

    @property
    def has_available(self) -> bool:
        """Whether something is to be given out again."""
        return self.counts[AVAILABLE] > 0

    @property
    def has_acquired(self) -> bool:
        return self.counts[ACQUIRED] > 0

    def wanted(self, max_records: int, max_locks: int) -> tuple[int, int] | None:
        """Where to read to give out so many: offsets [first, end). None if there is nothing that may be given out now,
        whatever is in the log."""
        first = None
        upto = self.end
        left = max_records
        for run in self.runs if self.has_available else ():
            if run.state == AVAILABLE:
                first = run.first if first is None else first
                upto = run.first + min(left, run.end - run.first)
                left -= upto - run.first
                if left <= 0:
                    return first, upto
        room = max_locks - self.unfinished
        if room > 0:
            return (self.end if first is None else first), self.end + min(left, room)
        return None if first is None else (first, upto)

    def acquire(
        self, member: str, batches: Sequence[Extent], demand: Demand, terms: Terms, now_ms: int
    ) -> list[Acquired]:
        """Give `member` what is available in these batches, which follow one another in the log."""
        if not batches or demand.max_records <= 0:
            return []
        taken = list(self._taken(batches, demand, terms))
        if not taken:
            return []
        deadline_ms = now_ms + terms.lock_ms
        self.reach(taken[-1].end)
        self.change(taken, lambda run, count: Run(run.first, run.end, ACQUIRED, count, member, deadline_ms))
        if self.next_deadline_ms is None or deadline_ms < self.next_deadline_ms:
            self.next_deadline_ms = deadline_ms
        return [part for piece in taken for part in _cut(piece, batches, demand.batch_records)]

    def _taken(self, batches: Sequence[Extent], demand: Demand, terms: Terms) -> Iterator[Acquired]:
        left = demand.max_records
        room = terms.max_locks - self.unfinished
        failures = max(FEWEST_FAILURES, (terms.count_limit + 1) // 2)
        low, high = max(batches[0].first, self.start), batches[-1].end
        runs = self.between(low, high)
        if high > self.end and room > 0:
            runs.append(Run(max(self.end, low), high, AVAILABLE))
        nothing_yet = True
        for run in runs:
            if run.state != AVAILABLE:
                continue
            first, end = max(run.first, low), min(run.end, high)
            most = left if run.end <= self.end else min(left, room)
            if run.deliveries == terms.count_limit - 1 and terms.count_limit > FEWEST_FAILURES:
                if nothing_yet:
                    yield Acquired(first, first + 1, run.deliveries + 1)
                return
            if run.deliveries >= failures:
                few = min(most, max(1, demand.max_records >> (run.deliveries - failures + 1)))
                yield Acquired(first, min(end, first + few), run.deliveries + 1)
                return
            if end - first > most:
                end = min(end, first + most if demand.exactly else _batch_end(batches, first + most - 1))
            yield Acquired(first, end, run.deliveries + 1)
            nothing_yet = False
            left -= end - first
            if left <= 0:
                return

    def pass_over(self, extents: Sequence[Extent]) -> None:
        """There is nothing in these, which ascend, that anyone is to get: control records, what was aborted, holes."""
        self._finish_those(extents, (AVAILABLE,))

    def outlived(self, extents: Sequence[Extent], *, dead_letter: bool) -> tuple[int, list[Saved]]:
        """The TTL of these, which ascend, is over. Of those that nobody has: how many there are, and what is to be
        written down where their dead letters are pending now."""
        changed: list[Saved] = []

        def settle(run: Run, _: int) -> Run:
            if run.state != AVAILABLE:
                return run
            settled = Run(*run[:2], EXPIRED, run.deliveries) if dead_letter else Run(*run[:2], FINISHED)
            changed.append(settled[:4])
            return settled

        self._change_those(extents, settle)
        return sum(end - first for first, end, _, _ in changed), self._written(changed) if dead_letter else []

    def _finish_those(self, extents: Iterable[Extent], states: Collection[int]) -> None:
        self._change_those(extents, lambda run, _: Run(*run[:2], FINISHED) if run.state in states else run)

    def _change_those(self, extents: Iterable[Extent], how: Settle) -> None:
        stretches = [(max(first, self.start), end, 0) for first, end in extents if end > self.start]
        if stretches:
            self.reach(stretches[-1][1])
            self.change(stretches, how)
            self.finish()

    # -- taking back ---------------------------------------------------------------------------------------------------

    def acknowledge(self, member: str, said: Sequence[Stretch], terms: Terms, now_ms: int) -> list[Saved]:
        """All of what was said (`stretches_of`), or nothing: raises BrokerError(INVALID_REQUEST, INVALID_RECORD_STATE).
        What lies below `start` is passed over."""
        start = self.start
        stretches = [each if each[0] >= start else (start, each[1], each[2]) for each in said if each[1] > start]
        for first, end in _joined(stretches, self.end):
            self._check_acquired(member, first, end)
        changed: list[Saved] = []

        def settle(run: Run, kind: int) -> Run:
            if run.state == FINISHED:
                return run
            if kind == RENEW:
                return run._replace(deadline_ms=now_ms + terms.lock_ms)
            settled = _settled(run, kind, terms)
            changed.append(settled[:4])
            return settled

        self.change(stretches, settle)
        return self._written(changed)

    def _check_acquired(self, member: str, first: int, end: int) -> None:
        if end > self.end:
            raise BrokerError(Fault.INVALID_REQUEST, "acknowledged offsets were not acquired yet")
        for run in self.between(first, end):
            if run.state != FINISHED and (run.state != ACQUIRED or run.member != member):
                raise BrokerError(Fault.INVALID_RECORD_STATE, "the member has not acquired all of these records")

    def release(self, member: str, terms: Terms) -> list[Saved]:
        """The member is gone: what it holds is available again."""
        return self._take_back(lambda run: run.member == member, terms) if self.has_acquired else []

    def expire(self, terms: Terms, now_ms: int) -> list[Saved]:
        """Take back what was held for too long."""
        if self.next_deadline_ms is None or now_ms < self.next_deadline_ms:
            return []
        changed = self._take_back(lambda run: run.deadline_ms <= now_ms, terms)
        self._look_for_deadline()
        return changed

    def _take_back(self, is_over: Callable[[Run], bool], terms: Terms) -> list[Saved]:
        settled = [_settled(run, RELEASE, terms) for run in self.runs if run.state == ACQUIRED and is_over(run)]
        self.change(((run.first, run.end, at) for at, run in enumerate(settled)), lambda _, at: settled[at])
        return self._written([run[:4] for run in settled])

    def _written(self, changed: list[Saved]) -> list[Saved]:
        """What is to be written down of these changes, which are made; and with them of what is finished beside them.
        Else markers and holes, which nothing else says, would stay as differences between records that are finished."""
        self.finish()
        if not self.has_acquired:
            self.next_deadline_ms = None
        written: list[Saved] = []
        above = [each for each in changed if each[1] > self.start]
        written += changed[: len(changed) - len(above)]
        for first, end in _joined(above, self.end):
            for run in self.between(max(first - 1, self.start), end + 1):
                if run.state == FINISHED:
                    piece = run[:4]
                elif run.first < end and run.end > first:
                    piece = max(run.first, first), min(run.end, end), run.state, run.deliveries
                else:
                    continue
                if not written or piece[0] >= written[-1][1]:
                    written.append(piece)
        return written

    def given_up(self) -> list[Saved]:
        """All of it but what somebody has acquired, to be written down."""
        return [run[:4] for run in self.runs if run.state != ACQUIRED]

    def back_to(self, mark: Mark) -> None:
        super().back_to(mark)
        self._look_for_deadline()

    def _look_for_deadline(self) -> None:
        self.next_deadline_ms = min((run.deadline_ms for run in self.runs if run.state == ACQUIRED), default=None)

    # -- the ends ------------------------------------------------------------------------------------------------------

    def first_pending_dead_letter(self) -> Run | None:
        """Of what a dead letter is to be written next."""
        if not self.dead_letters_pending:
            return None
        return next((run for run in self.runs if run.state in DEAD_LETTER_PENDING), None)

    def dead_letters_written(self, extents: Sequence[Extent]) -> None:
        """The dead letters of these, which ascend, are written, or cannot be."""
        self._finish_those(extents, DEAD_LETTER_PENDING)

    def drop_below(self, log_start: int) -> int:
        """The log begins there now: what was before it is gone. Returns how many dead letters are lost with it."""
        if log_start <= self.start:
            return 0
        pending = (run for run in self.between(self.start, log_start) if run.state in DEAD_LETTER_PENDING)
        lost = sum(min(run.end, log_start) - run.first for run in pending)
        self.begin_at(log_start)
        self.finish()
        self._look_for_deadline()
        return lost


def _settled(run: Run, kind: int, terms: Terms) -> Run:
    first, end, _, count, _, _ = run
    if kind == ACCEPT:
        return Run(first, end, FINISHED)
    if kind == RELEASE and count < terms.count_limit:
        return Run(first, end, AVAILABLE, count)
    if kind == GAP or not terms.dead_letters:
        return Run(first, end, FINISHED)
    return Run(first, end, EXHAUSTED if kind == RELEASE else REJECTED, count)


def stretches_of(batches: Sequence[Acknowledgement], terms: Terms) -> Pauses[list[Stretch]]:
    """What acknowledgements say, in slices; it depends on nothing but the group's terms. Raises
    BrokerError(INVALID_REQUEST, INVALID_RECORD_STATE) (KafkaApis.validateAcknowledgementBatches)."""
    before = -1
    found: list[Stretch] = []
    for at, (first, last, types) in enumerate(batches, 1):
        if first < 0 or first > last or first < before:
            raise BrokerError(Fault.INVALID_REQUEST, "acknowledged offsets must ascend")
        if first == before:
            raise BrokerError(Fault.INVALID_RECORD_STATE, "an offset is acknowledged twice")
        if len(types) != 1 and len(types) != last - first + 1:
            raise BrokerError(
                Fault.INVALID_REQUEST, "expected one acknowledgement type for all offsets, or one for each"
            )
        if min(types) < GAP or max(types) > RENEW:
            raise BrokerError(Fault.INVALID_REQUEST, "unknown acknowledgement type")
        if RENEW in types and not terms.renew:
            raise BrokerError(Fault.INVALID_REQUEST, "lock renewal is off for this group")
        before = last
        if len(types) == 1:
            found.append((first, last + 1, types[0]))
        else:
            begin = 0
            for upto in range(1, len(types) + 1):
                if upto == len(types) or types[upto] != types[begin]:
                    found.append((first + begin, first + upto, types[begin]))
                    begin = upto
        if not at % READ_AT_ONCE:
            yield
    return found


def _joined(stretches: Iterable[Sequence[int]], upto: int) -> Iterator[tuple[int, int]]:
    """The (first, end) of those, which ascend, that lie end to end are one, but for one that goes beyond `upto`."""
    first = end = -1
    for stretch in stretches:
        if stretch[0] != end or stretch[1] > upto:
            if end > first:
                yield first, end
            first = stretch[0]
        end = stretch[1]
    if end > first:
        yield first, end


def accepted(said: Iterable[Stretch], start: int) -> int:
    """How many messages these accept, of those from `start` on."""
    return sum(end - max(first, start) for first, end, kind in said if kind == ACCEPT and end > start)


def _batch_end(batches: Sequence[Extent], offset: int) -> int:
    """Where the batch ends that holds the offset."""
    return next(batch.end for batch in batches if batch.end > offset)


def _cut(piece: Acquired, batches: Sequence[Extent], batch_records: int) -> Iterator[Acquired]:
    """The piece, cut between batches of the log wherever `batch_records` have come together."""
    first, end, count = piece
    for batch in batches:
        if first < batch.first < end and batch.first - first >= batch_records:
            yield Acquired(first, batch.first, count)
            first = batch.first
    yield Acquired(first, end, count)
