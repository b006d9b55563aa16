"""Giving records out to members of share groups, and what becomes of them, carried out on the log.

What share partitions decide is a control record (`ShareChanged`) before any client is answered, so that a crash neither
loses an acknowledgement nor passes over a record that has none: what was acquired and not acknowledged is given out
again. Where a group begins is written down, too, when it first looks at a partition: Kafka works it out anew after a
restart as long as nothing was acknowledged, and with `latest` passes over what came meanwhile.

Locks end by timers, one a share partition. They are not in the wheel of scheduled messages (waiting/due_times.py):
a lock is over after a restart anyway, so only memory has it.

Requests that wait for records (core/hold.py) wait for share partitions, and are woken in the order of coming as long as
there is something for the next: one record wakes one of two hundred.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Final, Protocol

from halfmoon.config.share_settings import EARLIEST_MS, LATEST_MS, reset_ms
from halfmoon.core.append import Appender
from halfmoon.core.catalog.topics import Partition
from halfmoon.core.clock import Clock
from halfmoon.core.hold import HoldService
from halfmoon.core.partition_reader import PartitionReader
from halfmoon.core.timers import Timers
from halfmoon.errors import BrokerError
from halfmoon.schema import control
from halfmoon.services.common.group_events import GroupEvents, tell
from halfmoon.services.share.delivery_state import AVAILABLE, DEAD_LETTER_PENDING, FINISHED, Mark, Saved
from halfmoon.services.share.expiring import Lifetimes, with_ends
from halfmoon.services.share.options import Options, ShareOptions
from halfmoon.services.share.parts import Part, Parts, Place
from halfmoon.services.share.reading import Buffer, Found, Loading, Lost, Reading
from halfmoon.services.share.share_partition import Demand, Extent, Stretch, accepted

LOOKS: Final = 20
"""A fetch that finds nothing but holes and markers looks on so often before it returns to the loop."""


WRITE_AGAIN_MS: Final = 2_000
"""What has become of records, and could not be written down, is tried again after so long."""


class DeadLetterQueue(Protocol):
    """Writes dead letters."""

    def pending(self, part: Part) -> None:
        """Some are to be written of this share partition."""
        ...

    def lost(self, count: int) -> None:
        """So many records are gone before their dead letters were written."""
        ...


class ShareDelivery:
    """Of one broker."""

    def __init__(
        self,
        parts: Parts,
        appender: Appender,
        reader: PartitionReader,
        hold: HoldService,
        timers: Timers,
        clock: Clock,
        options: ShareOptions,
        logger: logging.Logger,
    ) -> None:
        self.parts = parts
        self._appender = appender
        self._reader = reader
        self._reading = Reading(reader)
        self._hold = hold
        self._timers = timers
        self._clock = clock
        self.options = options
        self._logger = logger
        self.dead_letters: DeadLetterQueue | None = None
        self.lifetimes: Lifetimes | None = None
        """None where nothing expires."""
        self.events = GroupEvents()
        """To be set before the first request."""

    # -- share partitions ----------------------------------------------------------------------------------------------

    def put_away(self, parts: Iterable[Part]) -> None:
        """Remove those from memory that need not be there."""
        for part in parts:
            if not self.parts.is_needed(part) and self.parts.is_at_work(part):
                self.forget([part])

    def begin(self, group: str, partition: Partition, options: Options) -> Part | Callable[[], int]:
        """What the group knows of a partition, from now on if it has never looked at it. A function is to be run in a
        thread; what it returns is where to begin (`begin_at`). Raises BrokerError."""
        part = self.parts.known(group, partition)
        if part is not None:
            return part
        ago_ms = reset_ms(options.auto_offset_reset)
        if ago_ms == EARLIEST_MS:
            return self.begin_at(group, partition, partition.start_offset)
        latest = partition.high_watermark
        if ago_ms in (LATEST_MS, None):
            return self.begin_at(group, partition, latest)
        search = self._reader.batch_for_time(partition, self._clock.wall_ms() - (ago_ms or 0))
        if search is None:
            return self.begin_at(group, partition, latest)
        found = search

        def load() -> int:
            place = found()
            return latest if place is None else place[0]

        return load

    def begin_at(self, group: str, partition: Partition, offset: int) -> Part:
        """Raises BrokerError."""
        part = self.parts.known(group, partition)
        if part is None:
            record = control.ShareChanged(group, partition.topic.number, partition.index, offset, [])
            self._appender.append_control(record)
            part = self.parts.add(Part(Place(group, partition), offset))
        return part

    # -- fetching ------------------------------------------------------------------------------------------------------

    def fetch(
        self, part: Part, member: str, demand: Demand, max_bytes: int, options: Options, load_bytes: int | None = None
    ) -> Found | Loading | None:
        """Give out some records. `Loading` is to be run in a thread, and its result handed to `loaded`; None if there
        is nothing now, or (`could_give` says which) only what nobody is to get has been seen so far. Raises
        BrokerError."""
        committed = options.committed_only
        for _ in range(LOOKS):
            wanted = self._wanted(part, demand.max_records, options)
            if wanted is None:
                return None
            first, end, limit = wanted
            found = self._reading.read(
                part.place.partition, first, end, limit, max_bytes, committed=committed, load_bytes=load_bytes
            )
            if not isinstance(found, Extent) and self.lifetimes is not None:
                found = with_ends(self.lifetimes, part.place.partition, found)
            if isinstance(found, Loading):
                part.is_loading = True
                return found
            if isinstance(found, Found):
                if self._give_out(part, member, found, demand, options).acquired:
                    return found
                continue
            if isinstance(found, Lost):
                self._logger.error(
                    "event=share_lost group=%s partition=%r first=%d count=%d reason=corruption",
                    *part.place, found.first, found.end - found.first,
                )  # fmt: skip
            part.pass_over([found])
        return None

    def _wanted(self, part: Part, max_records: int, options: Options) -> tuple[int, int, int] | None:
        """Where to read for so many records: offsets [first, end), and the limit up to which the group reads. None if
        there is nothing to be given out."""
        if part.is_loading:
            return None
        partition = part.place.partition
        lost = part.drop_below(partition.start_offset)
        if lost:
            self._logger.error("event=dead_letters_lost group=%s partition=%r count=%d", *part.place, lost)
            if self.dead_letters is not None:
                self.dead_letters.lost(lost)
        limit = partition.stable_offset if options.committed_only else partition.high_watermark
        wanted = part.wanted(max_records, options.terms.max_locks)
        if wanted is None or wanted[0] >= limit:
            return None
        return wanted[0], min(wanted[1], limit), limit

    def could_give(self, part: Part, options: Options) -> bool:
        """Whether a fetch has something to look at now."""
        return self._wanted(part, 1, options) is not None

    def loaded(
        self, part: Part, member: str, loading: Loading, slices: Sequence[Buffer], demand: Demand, options: Options
    ) -> Found:
        """The reading that `fetch` has asked for is done."""
        part.is_loading = False
        found = loading.found
        if self.lifetimes is not None:
            self.lifetimes.keep(found.ends)
        if self.parts.is_at_work(part):
            found.slices = slices
            self._give_out(part, member, found, demand, options)
            self._wake(part)
        return found

    def not_loaded(self, part: Part) -> None:
        """It has failed, or nobody wants it any more."""
        part.is_loading = False
        self._wake(part)
        self.put_away([part])

    def _give_out(self, part: Part, member: str, found: Found, demand: Demand, options: Options) -> Found:
        part.pass_over(list(found.for_nobody()))
        if self.lifetimes is not None:
            self._pass_over_expired(self.lifetimes, part, found, options)
        found.acquired = part.acquire(member, found.batches, demand, options.terms, self._clock.mono_ms())
        if part.next_deadline_ms is not None:
            self._watch(part)
        return found.cut()

    def _pass_over_expired(self, lifetimes: Lifetimes, part: Part, found: Found, options: Options) -> None:
        """Records whose TTL is over are given to nobody. That a dead letter is pending is written down at once; what is
        dropped is found out again after a restart."""
        expired: dict[bool, list[Extent]] = {}
        for topic, extent in found.expired(lifetimes.now_ms()):
            dead_letter = options.terms.dead_letters and lifetimes.dead_letters(topic)
            expired.setdefault(dead_letter, []).append(extent)
        for dead_letter, extents in expired.items():
            count, changed = part.outlived(extents, dead_letter=dead_letter)
            lifetimes.count("share", count, dead_lettered=dead_letter)
            if changed:
                self._put_down(part, changed)
                if self.dead_letters is not None:
                    self.dead_letters.pending(part)

    def _wake(self, part: Part) -> None:
        """Wake who waits for the share partition, one after the other, as long as there is something for the next."""
        hold = self._hold
        waiting = hold.waiting(part)
        if waiting:
            options = self.options.of(part.place.group)
            for held in waiting:
                if not self.could_give(part, options):
                    return
                hold.wake(held)

    def arrived(self, partitions: Iterable[Partition]) -> None:
        """Something has become visible in these."""
        if self.parts:
            for partition in partitions:
                for part in self.parts.of_partition(partition):
                    self._wake(part)

    def _watch(self, part: Part) -> None:
        deadline_ms = part.next_deadline_ms
        if part.is_unwritten:
            again_ms = self._clock.mono_ms() + WRITE_AGAIN_MS
            deadline_ms = again_ms if deadline_ms is None else min(deadline_ms, again_ms)
        if deadline_ms is None:
            self.parts.locks.cancel(part.timer)
        elif part.timer.deadline_ms != deadline_ms:
            self.parts.locks.set(part.timer, deadline_ms)
            self._timers.arm(deadline_ms)

    # -- what becomes of records ---------------------------------------------------------------------------------------

    def acknowledge(self, part: Part, member: str, said: Sequence[Stretch], options: Options) -> int:
        """Returns the log position to wait for. Raises BrokerError, and nothing is changed then."""
        mark, start = part.mark(), part.start
        changed = part.acknowledge(member, said, options.terms, self._clock.mono_ms())
        position = 0
        if changed:
            position = self._write(part, mark, changed)
        else:
            self._watch(part)
        if self.events.acknowledged:
            group, partition = part.place
            tell(self.events.acknowledged, group, partition.topic.name, partition.index, accepted(said, start))
        return position

    def _write(self, part: Part, mark: Mark, changed: list[Saved]) -> int:
        try:
            position = self._append(part, changed)
        except BrokerError:
            part.back_to(mark)
            raise
        self._settled(part, changed)
        return position

    def _append(self, part: Part, changed: list[Saved]) -> int:
        """Write changes down, and those that could not be before. Raises BrokerError."""
        group, partition = part.place
        if part.is_unwritten:
            changed = part.given_up()
        record = control.ShareChanged(group, partition.topic.number, partition.index, part.start, changed)
        position = self._appender.append_control(record)
        part.is_unwritten = False
        return position

    def _settled(self, part: Part, changed: list[Saved]) -> None:
        self._watch(part)
        if self.events.redelivered:
            group, partition = part.place
            again = sum(end - first for first, end, state, _ in changed if state == AVAILABLE)
            tell(self.events.redelivered, group, partition.topic.name, partition.index, again)
        if self.dead_letters is not None and any(state in DEAD_LETTER_PENDING for _, _, state, _ in changed):
            self.dead_letters.pending(part)
        self._wake(part)

    def _note(self, part: Part, changed: list[Saved]) -> None:
        """Nobody waits for it to be written: without it, records are given out once more after a crash. Where it cannot
        be written now, it is tried again, and stays in memory until then."""
        if not changed and not part.is_unwritten:
            self._watch(part)
            return
        self._put_down(part, changed)
        self._settled(part, changed)

    def _put_down(self, part: Part, changed: list[Saved]) -> None:
        try:
            self._append(part, changed)
        except BrokerError as error:
            if not part.is_unwritten:
                self._logger.error("event=share_state_not_written group=%s partition=%r error=%s", *part.place, error)
            part.is_unwritten = True
            self._watch(part)

    def release(self, group: str, member: str) -> None:
        """The member is gone: what it holds is available again."""
        options = self.options.of(group)
        parts = self.parts.of_group(group)
        for part in parts:
            self._note(part, part.release(member, options.terms))
        self.put_away(parts)

    def dead_letters_written(self, part: Part, extents: Sequence[Extent]) -> None:
        """Dead letters of these are in the log."""
        part.dead_letters_written(extents)
        self._wake(part)

    def finish_without_dead_letter(self, part: Part, first: int, end: int) -> None:
        """No dead letters can be written of these. Raises BrokerError."""
        mark = part.mark()
        pending = [run for run in part.between(first, end) if run.state in DEAD_LETTER_PENDING]
        part.dead_letters_written([Extent(first, end)])
        self._write(part, mark, [(max(run.first, first), min(run.end, end), FINISHED, 0) for run in pending])

    def expire(self, mono_ms: int) -> None:
        """Take back what was held for too long."""
        for timer in self.parts.locks.due(mono_ms):
            part = timer.action
            self._note(part, part.expire(self.options.of(part.place.group).terms, mono_ms))
            self.put_away([part])

    def forget(self, parts: Sequence[Part]) -> None:
        """Requests that wait for them look anew."""
        for part in parts:
            self.parts.remove(part)
        for part in parts:
            self._hold.wake_partition(part)

    def send_away(self) -> None:
        """The shard goes to another process, and its partitions are not here any more: requests that wait for them look
        anew, and are told so."""
        for part in self.parts.all():
            self._hold.wake_partition(part)
