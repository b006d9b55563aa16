"""Decides what is compacted or copied (B08). Three searches, in this order:

- *Compaction.* Of a topic whose cleanup.policy has `compact`, the partition with the largest part of new records, if
  that is more than `min.cleanable.dirty.ratio` (Kafka: LogCleanerManager), or one whose oldest new record has waited
  for `max.compaction.lag.ms`. Taken are all offsets from the start to the *clean point*: below the stable offset, in
  index files (so flushed), stored `min.compaction.lag.ms` ago, and before the partition's last batch, so that no reader
  waits at a hole for what never comes.
- *Emptying.* All topics share the log, so one that keeps its messages for long keeps everybody's segments. Where the
  oldest segments are mostly dead (`log.cleaner.min_dead_ratio`), what lives in them is copied out.
- *Tidying.* Compacted segments of which most is dead, and many small ones, are copied together.

Each takes a beginning of the partition's log, so one number tells what the log still counts for (`moved_upto`).
Messages that wait for a time are not moved: they go to the tail of their queue.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from operator import attrgetter
from typing import NamedTuple

from halfmoon.config.settings import Settings
from halfmoon.config.values import LONG_MAX
from halfmoon.core.catalog.catalog import Catalog
from halfmoon.core.catalog.topics import Partition
from halfmoon.core.clean_files import CleanFiles, data_path
from halfmoon.core.clock import Clock
from halfmoon.core.housekeeping import Housekeeping
from halfmoon.core.live import Live
from halfmoon.core.storage.frame import BEFORE_BYTES, HEADER_BYTES, before_payload
from halfmoon.core.storage.index import IndexFile, Key, Run
from halfmoon.core.storage.log_files import segment_path
from halfmoon.core.storage.storage import WriteSide
from halfmoon.schema.snapshot import CLEAN_BASE
from halfmoon.services.cleaner.tasks import Task, Work

LOOKED_AT = 10_000
"""Index runs of the oldest segments that are looked at, which takes about 10 ms, in slices; …"""
FEWEST_SEGMENTS = 4
"""… but so many segments in any case."""
TASK_FILES = 8
"""A task that copies writes so many files at most."""
MOST_WORKS = 1_000
"""A task is about so many partitions at most: 10 ms when one of its files is made known."""
SMALL_SHARE = 8
"""A file is small if it is no larger than a full one divided by this, and holds few partitions, …"""
SMALL_FILES = 12
"""… and so many small ones become one."""
SLICE = 100
"""Partitions that are looked at between two pauses: about half a millisecond."""

Found = Generator[None, None, list[Work]]


class NoRoomError(OSError):
    """Another file would leave too little of the disk."""

    def __str__(self) -> str:
        return "cleaning has to wait: the disk is nearly full"


def check_room(log: WriteSide, nbytes: int) -> None:
    """Raises NoRoomError where so much more would leave too little of the disk."""
    if log.fs.free_bytes() < log.low_disk_mark + nbytes:
        raise NoRoomError


class Plan(NamedTuple):
    task: Task
    step_bytes: int
    """What each of its files may take of the disk."""


class Cleanable(NamedTuple):
    """Of a compacted partition: up to where it may be cleaned; if there is something new, its bytes, and those of all
    that would be looked into."""

    partition: Partition
    upto_offset: int
    bytes: int
    dirty_bytes: int
    overdue: bool
    """A record of it has waited for `max.compaction.lag.ms`."""

    @property
    def ratio(self) -> float:
        return self.dirty_bytes / self.bytes if self.bytes else 0.0

    @property
    def is_due(self) -> bool:
        return self.dirty_bytes > 0 and (self.overdue or self.ratio > self.partition.topic.rules.min_dirty_ratio)


class Planner:
    """Looks at all partitions, in slices."""

    def __init__(
        self,
        log: WriteSide,
        catalog: Catalog,
        files: CleanFiles,
        housekeeping: Housekeeping,
        live: Live[Settings],
        clock: Clock,
    ) -> None:
        self._log = log
        self._catalog = catalog
        self._files = files
        self._housekeeping = housekeeping
        self._live = live
        self._clock = clock
        self._nothing_to_empty: tuple[int, int, int, int] | None = None
        """How things stood when the oldest segments were looked at in vain."""

    @property
    def file_bytes(self) -> int:
        """Compacted segments are no larger than this: a partition is replaced in steps of so much."""
        return min(self._log.clean_file_bytes, self._live.current.log.segment_bytes)

    def plan(self, published: int) -> Generator[None, None, Plan | None]:
        """The next task, if there is one. `published`: what the tasks so far have published. Raises NoRoomError."""
        for find in (self._compaction, lambda: self._emptying(published), self._tidying):
            works = yield from find()
            if works:
                return self._plan_of(works)
        return None

    def _plan_of(self, works: list[Work]) -> Plan | None:
        """None where there is nothing to do after all. Raises NoRoomError."""
        log = self._log
        files = self._index_files()
        # What has been merged, has expired or was deleted since it was looked at may come with the next task.
        works = [
            work
            for work in works
            if self._catalog.partition(work.number, work.partition) is not None
            and all(path in files for path, _, _ in work.sources)
        ]
        if not works:
            return None
        size = sum(self._bytes_of(work) for work in works)
        check_room(log, min(size, 2 * self.file_bytes))
        starts = {log.segment_at(files[path].start).start for work in works for path, _, _ in work.sources}
        segments = [(each.start, each.end, self._path_of(each.start)) for each in (*log.segments, *log.cleaned)]
        works.sort(key=lambda work: (work.number, work.partition, work.from_offset))
        task = Task(
            works, [each for each in segments if each[0] in starts], self._catalog.next_clean, self._clock.wall_ms(),
            self.file_bytes, self._live.current.log.cleaner.memory_bytes,
        )  # fmt: skip
        return Plan(task, min(size, self.file_bytes))

    def _index_files(self) -> dict[str, IndexFile]:
        """All that tell where something stands, by path."""
        files = {file.path: file for file in self._housekeeping.indexes.files}
        return files | {file.indexed.path: file.indexed for file in self._files}

    def is_outdated(self, task: Task) -> bool:
        """Whether something that the task was to read has expired meanwhile."""
        log, indexes = self._log, self._index_files()
        segments = {each.start for each in (*log.segments, *log.cleaned)}
        return any(start not in segments for start, _, _ in task.segments) or any(
            path not in indexes for work in task.works for path, _, _ in work.sources
        )

    def _path_of(self, start: int) -> str:
        return data_path(start) if start >= CLEAN_BASE else segment_path(start)

    def _bytes_of(self, work: Work) -> int:
        partition = self._catalog.partition(work.number, work.partition)
        assert partition is not None
        return sum(map(_size, _runs(partition, work.from_offset, work.upto_offset)))

    def _work(self, partition: Partition, low: int, high: int, *, compact: bool = False) -> Work:
        sources = [
            (run.file.path, run.first_offset, run.end_offset)
            for run in _runs(partition, low, high)
            if run.file is not None
        ]
        transactions = partition.transactions
        aborted = [] if transactions is None or not compact else list(transactions.aborted_in(low, high))
        return Work(
            partition.topic.number, partition.index, low, high, sources, partition.compacted_upto, compact,
            partition.topic.rules.delete_retention_ms, aborted,
        )  # fmt: skip

    # -- compaction --------------------------------------------------------------------------------------------------

    def _compaction(self) -> Found:
        due = []
        for nth, partition in enumerate(self._catalog.partitions()):
            if partition.topic.rules.compacts and partition.pending is None:
                found = self.cleanable(partition)
                if found.is_due:
                    due.append(found)
            if nth % SLICE == SLICE - 1:
                yield
        due.sort(key=attrgetter("overdue", "ratio"), reverse=True)
        works: list[Work] = []
        size = 0
        for each in due[:MOST_WORKS]:
            low = _first_base(each.partition)
            if low < each.upto_offset:
                works.append(self._work(each.partition, low, each.upto_offset, compact=True))
            size += each.bytes
            if size >= self.file_bytes:
                break
            if len(works) % SLICE == 0:
                yield
        return works

    def cleanable(self, partition: Partition) -> Cleanable:
        """What a compaction would look into."""
        rules, queue = partition.topic.rules, partition.queue
        now_ms = self._clock.wall_ms()
        begin = max(partition.compacted_upto, partition.start_offset)
        limit = min(partition.stable_offset, queue.last_base())
        upto = begin
        for run in queue.runs_from(begin):
            if run.end_offset <= begin:
                continue
            if run.file is None or run.newest_store_ms > now_ms - rules.min_compaction_lag_ms or upto >= limit:
                break
            row = run.row_for(limit)
            upto = run.columns.base[row] if row < run.high else run.end_offset
        dirty = sum(run.bytes for run in _runs(partition, begin, upto))
        before = sum(run.bytes for run in _runs(partition, partition.start_offset, begin)) if dirty else 0
        return Cleanable(partition, upto, dirty + before, dirty, self._is_overdue(partition, begin, now_ms))

    def _is_overdue(self, partition: Partition, begin: int, now_ms: int) -> bool:
        longest_ms = partition.topic.rules.max_compaction_lag_ms
        if longest_ms == LONG_MAX:
            return False
        run = next((run for run in partition.queue.runs_from(begin) if run.end_offset > begin), None)
        if run is None:
            return False
        position = run.columns.position[run.row_for(begin)]
        segment = self._log.segment_at(position)
        at = position - segment.start
        found = before_payload(segment.view[max(0, at - BEFORE_BYTES) : at], position)
        if found is not None:
            stored_ms = found[0]
        elif run.file is not None:  # of a cluster: what another node wrote is not here yet
            stored_ms = run.newest_store_ms
        else:
            return False
        overdue = stored_ms + longest_ms <= now_ms
        if overdue and run.file is None:
            self._housekeeping.freeze()
        return overdue

    # -- emptying ----------------------------------------------------------------------------------------------------

    def _emptying(self, published: int) -> Found:
        """Of the oldest segments, as many as are mostly dead together. Of those that other logs have, too, what lies
        elsewhere does not count: each log would copy its part of all of it."""
        log, indexes = self._log, self._housekeeping.indexes
        min_dead_ratio = self._live.current.log.cleaner.min_dead_ratio
        state: tuple[int, int, int, int] | None
        state = log.segments[-1].start, self._housekeeping.start_offset_moves, self._catalog.changes, published
        if state == self._nothing_to_empty:
            return []
        size = live = looked = 0
        ends: dict[Key, int] = {}
        """Up to which offset partitions stand in the segments looked at since those that are taken."""
        taken: dict[Key, int] = {}
        for segment in log.segments[:-1]:
            if looked > LOOKED_AT and size >= FEWEST_SEGMENTS * log.segment_bytes:
                break
            covered = segment.start
            own, is_shared = 0, segment.start < log.reusable_from
            for file in indexes.between(segment.start, segment.end):
                looked += len(file.runs)
                if file.start != covered:
                    break
                covered = file.end
                for nth, (key, run) in enumerate(file.runs.items()):
                    left = self._living(key, run)
                    if left is not None:
                        live += _size(left)
                        ends[key] = left.end_offset
                    if is_shared and self._catalog.partition(*key) is not None:
                        own += _size(run)
                    if nth % SLICE == SLICE - 1:
                        yield
                yield
            if covered != segment.end:  # it is not indexed yet
                state = None
                break
            size += own if is_shared else segment.size
            if size - live >= min_dead_ratio * size and size - live >= log.segment_bytes:
                taken |= ends
                ends = {}
        works: list[Work] = []
        planned = 0
        for key, end in sorted(taken.items()):
            partition = self._catalog.partition(*key)
            if partition is None or partition.pending is not None:
                continue
            low = max(_first_base(partition), partition.moved_upto)
            if low < end:
                works.append(self._work(partition, low, end))
                planned += sum(map(_size, _runs(partition, low, end)))
            if planned >= TASK_FILES * self.file_bytes or len(works) == MOST_WORKS:
                break
            if len(works) % SLICE == 0:
                yield
        self._nothing_to_empty = None if works else state
        return works

    def _living(self, key: Key, run: Run) -> Run | None:
        """What of a run of the log may be read."""
        partition = self._catalog.partition(*key)
        return None if partition is None else run.behind(max(partition.start_offset, partition.moved_upto))

    # -- tidying -----------------------------------------------------------------------------------------------------

    def _tidying(self) -> Found:
        """Of one compacted segment that is mostly dead, or of many small ones."""
        ranges: dict[int, list[tuple[Partition, int, int]]] = {}
        live: dict[int, int] = {}
        for nth, partition in enumerate(self._catalog.partitions() if len(self._files) else ()):
            for low, high, start in partition.cleaned:
                ranges.setdefault(start, []).append((partition, max(low, _first_base(partition)), high))
                read_from = max(low, partition.start_offset)
                live[start] = live.get(start, 0) + sum(map(_size, _runs(partition, read_from, high)))
            if nth % SLICE == SLICE - 1:
                yield
        small: list[int] = []
        for file in list(self._files):  # some may come and go meanwhile
            start, size = file.segment.start, file.segment.size
            if start not in ranges:
                continue
            whole = sum(map(_size, file.indexed.runs.values()))
            if live[start] < (1 - self._live.current.log.cleaner.min_dead_ratio) * whole:
                return [self._work(*each) for each in ranges[start]]
            if size <= self.file_bytes // SMALL_SHARE and len(ranges[start]) <= MOST_WORKS // SMALL_FILES:
                small.append(start)
            yield
        if len(small) < SMALL_FILES:
            return []
        return [self._work(*each) for start in small[: 2 * SMALL_SHARE] for each in ranges[start]]


def _runs(partition: Partition, low: int, high: int) -> Iterator[Run]:
    """What stands at the offsets [low, high)."""
    for run in partition.queue.runs_from(low):
        if run.first_offset >= high:
            return
        left = run.between(low, high)
        if left is not None:
            yield left


def _size(run: Run) -> int:
    """Bytes of its frames, but for what they say of where they come from."""
    return run.bytes + (run.high - run.low) * HEADER_BYTES


def _first_base(partition: Partition) -> int:
    """Where the first batch begins that may be read, in whole or in part."""
    for run in partition.queue.runs_from(partition.start_offset):
        row = run.row_for(partition.start_offset)
        if row < run.high:
            return min(partition.start_offset, run.columns.base[row])
    return partition.start_offset
