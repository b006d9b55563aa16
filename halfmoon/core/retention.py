"""Retention (B08): start offsets move, producers are forgotten, and segments go in which nothing lives.

What walks over all partitions or over the runs of an index file does it in slices.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator

from halfmoon.core.append import Appender
from halfmoon.core.catalog.catalog import Catalog
from halfmoon.core.catalog.topics import Partition
from halfmoon.core.clean_files import CleanFiles
from halfmoon.core.clock import Clock
from halfmoon.core.features import Features
from halfmoon.core.index_files import IndexFiles
from halfmoon.core.producer_state import Producers
from halfmoon.core.storage.storage import WriteSide
from halfmoon.errors import BrokerError
from halfmoon.schema import control

PRODUCER_EXPIRATION_MS = 86_400_000
"""Kafka: producer.id.expiration.ms."""
SLICE_COST = 1_000
"""Partitions and index runs that one slice of the walk looks at: about a millisecond."""
LIVES_COST = 5_000
"""Index runs that are looked at for whether a segment lives: about two milliseconds."""


class Retention:
    def __init__(
        self,
        log: WriteSide,
        catalog: Catalog,
        indexes: IndexFiles,
        clean_files: CleanFiles,
        appender: Appender,
        clock: Clock,
        problems: list[str],
    ) -> None:
        """`problems`: what goes wrong is put there, a sentence each."""
        self._log = log
        self._catalog = catalog
        self._indexes = indexes
        self._clean_files = clean_files
        self._appender = appender
        self._clock = clock
        self._problems = problems
        self.features = Features()
        self._pending_upto = 0
        """Pending deletion: segments that end here or before hold nothing that lives, …"""
        self._pending_at = 0
        """… once the log is on disk up to here."""
        self._free_upto = 0
        """Segments that end here or before may go."""
        self.start_offset_moves = 0

    def walk(self) -> Iterator[None]:
        """Over all partitions, in slices: move start offsets, forget old producers; then find what may go."""
        yield from self._catalog.bury()
        now_ms = self._clock.wall_ms()
        moves = []
        looked = 0
        for partition in list(self._catalog.partitions()):
            if partition.producers is not None:
                yield from _forget_producers(partition, partition.producers, now_ms - PRODUCER_EXPIRATION_MS)
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
            for retain in self.features.retain:
                yield from retain(now_ms)
        except BrokerError as error:
            self._problems.append(f"retention: {error}")
        yield from self.find_dead()

    def _move(self, moves: list[tuple[int, int, int]]) -> None:
        if not moves:
            return
        try:
            self._appender.append_control(control.StartOffsetsMoved(moves))
        except BrokerError as error:
            self._problems.append(f"retention: {error}")
            return
        self.start_offset_moves += len(moves)

    def find_dead(self) -> Iterator[None]:
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
            if (yield from self._lives(segment.start, segment.end)):
                break
            upto = segment.end
        self._pending_upto, self._pending_at = upto, log.end
        for segment in log.segments[:-1]:
            if segment.end > upto and (yield from self._lives(segment.start, segment.end, waiting=False)):
                break
            upto = segment.end
        for reclaim in self.features.reclaim:
            reclaim(upto)

    @property
    def frees_log(self) -> bool:
        """Whether a segment may go now that the log is on disk so far."""
        return self._pending_upto > self._free_upto and self._log.flushed >= self._pending_at

    def _free_pending(self) -> None:
        if self._log.flushed >= self._pending_at:
            self._free_upto = max(self._free_upto, self._pending_upto)

    def dead(self) -> Iterator[None] | None:
        """What has to be done in the loop, in slices, before the oldest segment goes; None where it does not."""
        self._free_pending()
        if len(self._log.segments) > 1 and self._log.segments[0].end <= self._free_upto:
            return self._drop_oldest()
        return None

    def _drop_oldest(self) -> Iterator[None]:
        log = self._log
        files = self._indexes.within(log.segments[0])
        for file in files:
            yield from self._indexes.drop(file, self._catalog)
        derived = [path for each in self.features.derived for path in each.forget(log.segments[0].end)]
        log.remove_oldest([file.path for file in files] + derived)

    def _lives(self, start: int, end: int, *, waiting: bool = True) -> Generator[None, None, bool]:
        """Whether the segment [start, end) holds a record that may be read, or is not wholly indexed yet. Without
        `waiting`, messages that wait for their time do not count."""
        covered, looked = start, 0
        for file in self._indexes.between(start, end):
            if file.start != covered:
                return True
            runs = file.runs
            if file not in self._indexes.files:
                return True
            covered = file.end
            for key, run in runs.items():
                looked += 1
                if not looked % LIVES_COST:
                    yield
                    if file.runs is not runs:  # it was merged meanwhile; the next walk will find out
                        return True
                partition = self._catalog.partition(*key)
                if partition is None or run.end_offset <= max(partition.start_offset, partition.moved_upto):
                    continue
                if waiting or partition.pending is None:
                    return True
        return covered != end


def _forget_producers(partition: Partition, producers: Producers, before_ms: int) -> Iterator[None]:
    transactions = partition.transactions
    count = len(producers.by_id)
    for _ in producers.expire(before_ms, () if transactions is None else transactions.open):
        partition.saved = None
        yield
        count = len(producers.by_id)  # others have come meanwhile
    if len(producers.by_id) < count:
        partition.saved = None


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
