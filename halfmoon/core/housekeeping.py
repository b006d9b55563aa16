"""What the broker does beside answering: index files, checkpoints, the next segment, retention.

Slow work is a `Job` (core/jobs.py). One job at a time, so that they never overtake each other and leave a core to the
requests. What walks over all partitions does it in slices.

A job that fails is told (`problems`, /healthz) and tried again at the next turn of the clock: nothing is lost
meanwhile, since everything made here can be made again from the log.

No feature is named here: they take part as core/features.py says.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import TypeVar

from halfmoon.config.settings import Settings
from halfmoon.core.append import Appender
from halfmoon.core.catalog import snapshot
from halfmoon.core.catalog.catalog import Catalog
from halfmoon.core.catalog.topics import Partition
from halfmoon.core.clean_files import CleanFiles
from halfmoon.core.clock import Clock
from halfmoon.core.dispatch import Frozen, adopt, write_index
from halfmoon.core.features import Features
from halfmoon.core.index_files import IndexFiles
from halfmoon.core.jobs import Job
from halfmoon.core.live import Live
from halfmoon.core.storage.index import IndexFile
from halfmoon.core.storage.segment import Removed
from halfmoon.core.storage.storage import WriteSide
from halfmoon.core.turn import Turn
from halfmoon.errors import BrokerError
from halfmoon.schema import control

CHECKPOINT_INTERVAL_MS = 1_000
"""Checkpoints of the catalog are no closer than this, however fast the log grows. A start after a crash reads again
what was written since the last."""
CHECKPOINT_REST = 100
"""After a checkpoint whose encoding took t, the next waits for this many times t: 100,000 partitions take 0.1 s."""
CHECKPOINT_BATCHES = 20_000
"""A checkpoint comes after so many batches, however small they are: a start takes 15 µs for each."""
IDLE_CHECKPOINT_MS = 3_600_000
"""What was appended is indexed and checkpointed after an hour at the latest, however little it is."""
PRODUCER_EXPIRATION_MS = 86_400_000
"""Kafka: producer.id.expiration.ms."""
SLICE_COST = 1_000
"""Partitions and index runs that one slice of the walk looks at: about a millisecond."""

T = TypeVar("T")


class Housekeeping:
    def __init__(
        self,
        log: WriteSide,
        catalog: Catalog,
        turn: Turn,
        indexes: IndexFiles,
        clean_files: CleanFiles,
        appender: Appender,
        live: Live[Settings],
        clock: Clock,
        logger: logging.Logger,
    ) -> None:
        self._log = log
        self._catalog = catalog
        self._turn = turn
        self.indexes = indexes
        self._clean_files = clean_files
        self._appender = appender
        self._live = live
        self._clock = clock
        self._logger = logger
        self._features = Features()
        self.problems: list[str] = []
        """Since the last `turn`."""
        self._planned = 0
        self._checkpoint_due_ms = 0
        self._checkpoint_owed = False
        """The last freeze came too early for one."""
        self._frozen_ms = 0
        self._running = False
        self._resting = False
        """A job failed; nothing is tried before the next `turn`."""
        self._pending_upto = 0
        """Pending deletion: segments that end here or before hold nothing that lives, …"""
        self._pending_at = 0
        """… once the log is on disk up to here."""
        self._free_upto = 0
        """Segments that end here or before may go."""
        self._retaining: Iterator[None] | None = None
        self.start_offset_moves = 0

    def bind(self, features: Features) -> None:
        self._features = features
        self._clean_files.derived = features.derived

    def opened(self) -> None:
        """The log is recovered."""
        now_ms = self._clock.mono_ms()
        self._planned = self._log.end
        self._checkpoint_due_ms = now_ms + CHECKPOINT_INTERVAL_MS
        self._frozen_ms = now_ms

    # -- what is due -------------------------------------------------------------------------------------------------

    def plan(self) -> None:
        """Ask for a freeze where enough was appended since the last. Cheap; called after every write."""
        if self._log.end - self._planned >= self._live.current.log.index_checkpoint_bytes or (
            self._turn.dispatch.rows >= CHECKPOINT_BATCHES and self._clock.mono_ms() >= self._checkpoint_due_ms
        ):
            self._freeze()

    def freeze(self) -> None:
        """Have all that was appended so far indexed soon."""
        if self._log.end > self._planned:
            self._freeze()

    def _freeze(self) -> None:
        now_ms, end = self._clock.mono_ms(), self._log.end
        checkpoint = None
        self._checkpoint_owed = now_ms < self._checkpoint_due_ms
        if not self._checkpoint_owed:
            checkpoint = snapshot.take(self._catalog, end, self._log.generation)
            took_ms = self._clock.mono_ms() - now_ms
            self._checkpoint_due_ms = now_ms + max(CHECKPOINT_INTERVAL_MS, CHECKPOINT_REST * took_ms)
        self._planned, self._frozen_ms = end, now_ms
        dispatch = self._turn.dispatch
        dispatch.freeze_at(end, checkpoint)
        if dispatch.position == end:
            dispatch.run((), end, {})

    def turn(self) -> None:
        """The clock's turn, every few seconds: begin what time alone makes due."""
        self._resting = False
        self.problems = []
        for background in self._features.background:
            background.turn()
        log = self._log
        log.bury_zombies()
        if log.low_disk and log.has_room():
            log.low_disk = False
        log.no_segment = ""
        try:
            for checkpoint in self._features.checkpoint:
                checkpoint()
        except BrokerError as error:
            self.problems.append(f"checkpoints of features: {error}")
        now_ms = self._clock.mono_ms()
        owed = self._checkpoint_owed and now_ms >= self._checkpoint_due_ms
        if owed or (log.end > self._planned and now_ms - self._frozen_ms >= IDLE_CHECKPOINT_MS):
            self._freeze()

    def next_job(self) -> Job[object] | None:
        """The next slow thing, if none is running. The caller runs it and calls `done` or `failed`."""
        if self._running or self._resting or self._log.failed is not None:
            return None
        job = self._find_job()
        if job is None:
            return None
        self._running = True
        return job

    def _find_job(self) -> Job[object] | None:
        log, dispatch = self._log, self._turn.dispatch
        remove = self._begin_removal()
        if remove is not None:
            return self._job("removing a file", remove, log.removed)
        if log.wants_spare():
            return self._job("allocating a segment", log.begin_spare(), log.take_spare, lambda: log.take_spare(None))
        if dispatch.frozen and dispatch.frozen[0].end <= log.flushed:
            frozen = dispatch.frozen[0]
            return self._job("writing an index", lambda: self._write(frozen), lambda file: self._adopt(frozen, file))
        files = self.indexes.mergeable(log.segments)
        if files:
            return self._job(
                "merging indexes",
                lambda: self.indexes.merge(files),
                lambda merged: self.indexes.replace(files, merged, self._catalog),
            )
        return None

    def _job(
        self, name: str, run: Callable[[], T], done: Callable[[T], None], undo: Callable[[], None] = lambda: None
    ) -> Job[object]:
        def finished(result: object) -> None:
            self._running = False
            done(result)  # type: ignore[arg-type]

        def failed(error: Exception) -> None:
            self._running = False
            self._resting = True
            undo()
            self.problems.append(f"{name} failed: {error}")
            self._logger.error("event=job_failed job=%s error=%s", name, error)

        return Job(name, run, finished, failed)

    def _write(self, frozen: Frozen) -> IndexFile:
        fs = self._log.fs
        file = write_index(fs, frozen)
        if frozen.checkpoint is not None:
            snapshot.save(fs, frozen.checkpoint)
        return file

    def _adopt(self, frozen: Frozen, file: IndexFile) -> None:
        taken = self._turn.dispatch.frozen.popleft()
        assert taken is frozen
        adopt(frozen, file)
        self.indexes.add(file)

    def finish(self, checkpoint: bytes) -> None:
        """At a clean stop, everything flushed: write all that is left, waiting for it. Raises OSError."""
        fs, dispatch, end = self._log.fs, self._turn.dispatch, self._log.end
        dispatch.freeze_at(end)
        dispatch.run((), end, {})
        while dispatch.frozen:
            frozen = dispatch.frozen[0]
            self._adopt(frozen, write_index(fs, frozen))
        snapshot.save(fs, checkpoint)

    # -- retention (B08) ---------------------------------------------------------------------------------------------

    def retain(self) -> bool:
        """A slice of a walk over all partitions: move start offsets, forget old producers; at its end drop segments.

        Returns whether the walk is over; then wait for the interval before the next call.
        """
        if self._retaining is None:
            self._retaining = self._walk()
        try:
            next(self._retaining)
        except StopIteration:
            self._retaining = None
            self.drop_segments()
            return True
        return False

    def _walk(self) -> Iterator[None]:
        yield from self._catalog.bury()
        now_ms = self._clock.wall_ms()
        moves = []
        looked = 0
        for partition in list(self._catalog.partitions()):
            if partition.producers is not None:
                transactions = partition.transactions
                yield from partition.producers.expire(
                    now_ms - PRODUCER_EXPIRATION_MS, () if transactions is None else transactions.open
                )
            start, cost = due_start(partition, now_ms)
            if start > partition.start_offset:
                moves.append((partition.topic.number, partition.index, start))
            looked += cost
            if looked >= SLICE_COST:
                self._move(moves)
                moves, looked = [], 0
                yield
        self._move(moves)
        try:
            for retain in self._features.retain:
                yield from retain(now_ms)
        except BrokerError as error:
            self.problems.append(f"retention: {error}")

    def _move(self, moves: list[tuple[int, int, int]]) -> None:
        if not moves:
            return
        try:
            self._appender.append_control(control.StartOffsetsMoved(moves))
        except BrokerError as error:
            self.problems.append(f"retention: {error}")
            return
        self.start_offset_moves += len(moves)

    def drop_segments(self) -> None:
        """Find the oldest segments in which nothing lives, to be removed one by one.

        What made them dead (start offsets moved, topics deleted, the next segment's head) must be on disk before:
        else a loss of power would bring back the need and not the bytes. So its deletion is pending first, and it goes
        when the log is flushed beyond that moment.
        """
        log = self._log
        if log.failed is not None:
            return
        self._free_pending()
        upto = log.start
        for segment in log.segments[:-1]:
            if self._lives(segment.start, segment.end):
                break
            upto = segment.end
        self._pending_upto, self._pending_at = upto, log.end
        for segment in log.segments[:-1]:
            if segment.end > upto and self._lives(segment.start, segment.end, waiting=False):
                break
            upto = segment.end
        for reclaim in self._features.reclaim:
            reclaim(upto)

    def _free_pending(self) -> None:
        if self._log.flushed >= self._pending_at:
            self._free_upto = max(self._free_upto, self._pending_upto)

    @property
    def may_remove(self) -> bool:
        """Whether files may go now that the log is on disk so far."""
        frees_log = self._pending_upto > self._free_upto and self._log.flushed >= self._pending_at
        return frees_log or self._clean_files.may_drop

    def _begin_removal(self) -> Callable[[], Removed] | None:
        """For a thread: it removes the next file that may go. A job for each, so that nobody waits for many."""
        log = self._log
        remove = log.begin_removal()
        if remove is None:
            self._free_pending()
            if len(log.segments) > 1 and log.segments[0].end <= self._free_upto:
                self._drop_oldest()
            else:
                self._clean_files.drop_unneeded(self._catalog)
            remove = log.begin_removal()
        return remove

    def _drop_oldest(self) -> None:
        log = self._log
        files = self.indexes.within(log.segments[0])
        for file in files:
            self.indexes.drop(file, self._catalog)
        derived = [path for each in self._features.derived for path in each.forget(log.segments[0].end)]
        log.remove_oldest([file.path for file in files] + derived)

    def _lives(self, start: int, end: int, *, waiting: bool = True) -> bool:
        """Whether the segment [start, end) holds a record that may be read, or is not wholly indexed yet. Without
        `waiting`, messages that wait for their time do not count."""
        covered = start
        for file in self.indexes.between(start, end):
            if file.start != covered:
                return True
            covered = file.end
            for key, run in file.runs.items():
                partition = self._catalog.partition(*key)
                if partition is None or run.end_offset <= max(partition.start_offset, partition.moved_upto):
                    continue
                if waiting or partition.pending is None:
                    return True
        return covered != end


def due_start(partition: Partition, now_ms: int) -> tuple[int, int]:
    """Where the partition should begin by its retention, judged by whole index files; and how many were looked at.

    Time counts from when the newest record of such a file was stored, not from the records' own timestamps: records
    of 2013 that come in today are kept as long as those of today. (Kafka goes by the records' timestamps.)
    """
    rules, queue = partition.topic.rules, partition.queue
    start = partition.start_offset
    cost = 1
    if partition.pending is not None:  # what waits is kept, and nothing else
        first = partition.pending.first()
        while first is not None and queue.damage_at(first):  # lost to rot: it keeps nothing
            first = partition.pending.first(first + 1)
        return (queue.end_offset if first is None else max(start, min(first, queue.end_offset))), cost
    if rules.deletes and rules.retention_ms >= 0:
        for run in queue.runs_from(start):
            if run.end_offset <= start:
                continue
            cost += 1
            if run.file is None:
                break
            row = run.stored_before(now_ms - rules.retention_ms)
            if row < run.high:
                start = max(start, run.columns.base[row]) if row > run.low else start
                break
            start = run.end_offset
    if rules.deletes and rules.retention_bytes >= 0:
        runs = [run for run in queue.runs_from(start) if run.end_offset > start]
        cost += len(runs)
        left = sum(run.bytes for run in runs)
        for run in runs:
            if run.file is None or left - run.bytes < rules.retention_bytes:
                break
            left -= run.bytes
            start = run.end_offset
    return start, cost
