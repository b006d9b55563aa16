"""Sends recurring messages when their time has come: a relay task.

A message and the record of how far its schedule is are one frame group. After a crash both are there, or none, so a
time is kept once. What is known of a time that is over is written down, also if no message was sent: because it was
missed, or because its creator may not send it any more.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from msgspec.structs import replace

from halfmoon.plugin import BrokerError, Fault, FeatureContext, format_duration, iter_records
from halfmoon.plugin.moving import Load, Partition, Piece, Topic, parse_header, set_log_append_time
from halfmoon.plugins.store.schedule import times
from halfmoon.plugins.store.schedule.book import Book
from halfmoon.plugins.store.schedule.records import (
    CONFIGS,
    TOPIC,
    Progress,
    Recurring,
    batch_of,
    decoded,
    of_end,
    of_progress,
)

READ_BYTES = 1 << 20
BY = "halfmoon.schedule"
"""The header of a message that says which schedule has sent it, …"""
TIME = "halfmoon.schedule-time"
"""… and the one that says for what time (Unix ms)."""
LONGEST_MS = 86_400_000
"""The task looks at the clock so often at least."""


class Counters:
    """Since the start."""

    def __init__(self) -> None:
        self.sent = 0
        self.missed = 0
        self.refused = 0
        self.unreadable = 0
        """Records of schedules that nobody can read."""


class Firing:
    """A relay task (halfmoon.plugin.moving.Mover)."""

    def __init__(self, ctx: FeatureContext, book: Book, late_ms: int) -> None:
        """`late_ms`: a time is missed if it is longer ago."""
        self._plugin = ctx.plugin
        self._topics = ctx.topics
        self._writer = ctx.writer
        self._reader = ctx.reader
        self._relays = ctx.relays
        self._clock = ctx.clock
        self._logger = ctx.plugin.logger
        self._book = book
        self._late_ms = late_ms
        self._next_offset = 0
        """Of what is kept: it was read up to here."""
        self._topics_went = True
        """Some may have: to be looked at."""
        self.counters = Counters()

    def __str__(self) -> str:
        return "schedules"

    def start(self) -> None:
        self._relays.add(self, self)

    def stop(self) -> None:
        self._relays.remove(self)

    def topic_deleted(self, _topic: Topic) -> None:
        self._topics_went = True
        self._relays.wake(self)

    def wake(self) -> None:
        """Something was changed."""
        self._relays.wake(self)

    def run(self) -> Generator[Load | None, Any, None]:
        book = self._book
        if not book.is_ready:
            yield from self._read()
            book.ready()
        if self._topics_went:
            self._topics_went = False
            for gone in [each for each in book if self._target(each) is None]:
                self._end(gone)
                yield None
        while (soonest := book.soonest()) is not None:
            at_ms, schedule_id = soonest
            now_ms = self._clock.wall_ms()
            if at_ms > now_ms:
                self._relays.wake_at(self, self._clock.mono_ms() + min(at_ms - now_ms, LONGEST_MS))
                return
            schedule = book.get(schedule_id)
            assert schedule is not None, "what is due is there"
            self._decide(schedule, now_ms)
            yield None

    # -- reading what is kept ------------------------------------------------------------------------------------------

    def _read(self) -> Generator[Load | None, Any, None]:
        """Raises OSError, BrokerError; then it goes on later where it was."""
        topic = self._topics.get(TOPIC)
        if topic is None:
            return
        kept = self.kept()
        self._next_offset = max(self._next_offset, kept.start_offset)
        while self._next_offset < kept.stable_offset:
            try:
                read = self._reader.read(kept, self._next_offset, READ_BYTES, min_one=True)
            except BrokerError as error:
                if error.fault is not Fault.CORRUPT_MESSAGE:
                    raise
                self._skip(kept, error)
                continue
            batches = read.slices if read.cold is None else (yield read.cold)
            if not batches:  # else nobody would know of the schedules behind
                raise BrokerError(Fault.KAFKA_STORAGE_ERROR, f"offset {self._next_offset} of {kept!r} cannot be found")
            for batch in batches:
                self._take_in(memoryview(batch))
                yield None

    def _skip(self, kept: Partition, error: BrokerError) -> None:
        """What was lost to corruption."""
        at = self._next_offset
        self._next_offset = next(high for low, high in kept.queue.damaged if low <= at < high)
        self.counters.unreadable += 1
        self._logger.error("event=schedules_lost from=%d next=%d reason=%s", at, self._next_offset, error.message)

    def _take_in(self, batch: memoryview) -> None:
        header = parse_header(batch)
        for record in iter_records(batch):
            try:
                schedule_id, said = decoded(record.key, record.value)
            except ValueError as error:  # also msgspec's, and of what is not UTF-8
                self.counters.unreadable += 1
                self._logger.error(
                    "event=schedule_unreadable offset=%d reason=%s", header.base_offset + record.offset_delta, error
                )
            else:
                self._book.take_in(schedule_id, said)
        self._next_offset = header.base_offset + header.last_offset_delta + 1

    # -- what is due ---------------------------------------------------------------------------------------------------

    def kept(self) -> Partition:
        """Where schedules are kept. Raises BrokerError."""
        return self._topics.internal_partition(TOPIC, CONFIGS)

    def _target(self, schedule: Recurring) -> Partition | None:
        """Where its messages go; None where that is gone, or lies in another shard, which has the schedule, too: this
        one was made from the log of a broker that had all of them."""
        topic = self._topics.get(schedule.topic)
        if topic is None or topic.id.hex() != schedule.topic_id or schedule.partition >= len(topic.partitions):
            return None
        partition = topic.partitions[schedule.partition]
        return None if partition.is_remote() else partition

    def _end(self, schedule: Recurring) -> None:
        """There is nothing any more to which it could send. Raises BrokerError."""
        self._writer.append_relayed(self.kept(), batch_of(of_end(schedule.id, self._clock.wall_ms())))
        self._book.ended(schedule.id)
        self._logger.info("event=schedule_ended schedule=%s reason=%s", schedule.id, "its topic is not here any more")

    def _decide(self, schedule: Recurring, now_ms: int) -> None:
        """Raises BrokerError."""
        progress = schedule.progress
        found = times.due(
            schedule.cron, schedule.zone, progress.upto_ms, now_ms,
            late_ms=self._late_ms, once=schedule.missed == "once",
        )  # fmt: skip
        progress = replace(progress, upto_ms=found.upto_ms, missed=progress.missed + found.missed)
        if found.send_ms is None:
            self._go_on(schedule, progress)
        else:
            self._send(schedule, progress, found.send_ms, now_ms)
        if found.missed:
            self.counters.missed += found.missed
            self._logger.warning(
                "event=schedule_missed schedule=%s times=%d reason=%s", schedule.id, found.missed,
                f"more than {format_duration(self._late_ms)} late",
            )  # fmt: skip

    def _send(self, schedule: Recurring, progress: Progress, at_ms: int, now_ms: int) -> None:
        """Send the message of one time. Raises BrokerError."""
        target = self._target(schedule)
        if target is None:
            self._end(schedule)
            return
        if not self._plugin.allows(schedule.principal, schedule.host, "write", "topic", schedule.topic):
            self._refused(schedule, progress, f"{schedule.principal} is not allowed to write to the topic")
            return
        said = (BY, schedule.name.encode()), (TIME, str(at_ms).encode())
        batch = memoryview(batch_of([(schedule.key, schedule.value, now_ms, (*schedule.headers, *said))]))
        rules = target.topic.rules
        if len(batch) > rules.max_message_bytes:
            self._refused(schedule, progress, "its message is larger than the topic's max.message.bytes")
            return
        if rules.compacts and schedule.key is None:
            self._refused(schedule, progress, "its message has no key, and the topic is compacted")
            return
        if rules.log_append_time:
            set_log_append_time(batch, now_ms)
        progress = replace(progress, fired=progress.fired + 1, last_ms=at_ms, problem="")
        kept = memoryview(batch_of([of_progress(schedule.id, progress, now_ms)]))
        pieces = [Piece(target, batch, parse_header(batch)), Piece(self.kept(), kept, parse_header(kept))]
        self._writer.append_group(pieces, now_ms, keyed=True)
        self._book.went_on(schedule.id, progress)
        self.counters.sent += 1

    def _refused(self, schedule: Recurring, progress: Progress, problem: str) -> None:
        progress = replace(progress, refused=progress.refused + 1, problem=problem)
        self._logger.warning("event=schedule_refused schedule=%s reason=%s", schedule.id, problem)
        self.counters.refused += 1
        self._go_on(schedule, progress)

    def _go_on(self, schedule: Recurring, progress: Progress) -> None:
        """Write down that a time is over without a message. Raises BrokerError."""
        row = of_progress(schedule.id, progress, self._clock.wall_ms())
        self._writer.append_relayed(self.kept(), batch_of([row]))
        self._book.went_on(schedule.id, progress)
