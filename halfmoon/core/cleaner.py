"""Decides what is cleaned, and puts clean files in place of what they were made from (B08).

Three jobs, in this order, one at a time; what they write is core/clean_files.py's, how is core/cleaning.py's:

- *Compaction.* Of a topic whose cleanup.policy has `compact`, the partition with the largest part of new records, if
  that is more than `min.cleanable.dirty.ratio` (Kafka: LogCleanerManager), or one whose oldest new record has waited
  for `max.compaction.lag.ms`. Taken are all offsets from the start to the *clean point*: below the stable offset, in
  index files (so flushed), stored `min.compaction.lag.ms` ago, and before the partition's last batch, so that no reader
  waits at a hole for what never comes.
- *Emptying.* All topics share the log, so one that keeps its messages for long keeps everybody's segments. Where the
  oldest segments are mostly dead (`log.cleaner.min_dead_ratio`), what lives in them is copied out.
- *Tidying.* Clean files of which most is dead, and many small ones, are copied together.

Each takes a beginning of the partition's log, so one number tells what the log still counts for (`moved_upto`). A
finished file is published by one control record; then reads find it, and what it was made from is dead. That is removed
when the record is on disk. Offsets, and what frames say of where their batches come from, do not change. What settles a
waiting message may go with its frame: the set of those that wait is in the snapshot at the head of each segment.

Messages that wait for a time are not moved: they go to the tail of their queue (core/rolling.py).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator, Iterator, Set
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple

from halfmoon.core import cleaning
from halfmoon.core.clean_files import data_path
from halfmoon.core.clean_reading import SourceGoneError
from halfmoon.core.cleaning import Counts, Output, Task, Work
from halfmoon.core.commitlog import segment_path
from halfmoon.core.config_values import LONG_MAX
from halfmoon.core.errors import BrokerError
from halfmoon.core.frame import BEFORE_BYTES, HEADER_BYTES, before_payload
from halfmoon.core.housekeeping import Job
from halfmoon.core.index import Key
from halfmoon.schema.snapshot import CLEAN_BASE

if TYPE_CHECKING:
    from halfmoon.core.broker import Broker
    from halfmoon.core.catalog.topics import Partition
    from halfmoon.core.clean_files import CleanFile, CleanFiles
    from halfmoon.core.index import IndexFile, Run

FILE_BYTES = 512 << 20
"""Clean files are no larger than this, nor than a segment: a partition is replaced in steps of so much."""
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

Found = Generator[None, None, "list[Work]"]
_OVER = object()


class NoRoomError(OSError):
    """Another file would leave too little of the disk."""

    def __str__(self) -> str:
        return "cleaning has to wait: the disk is nearly full"


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


class Cleaner:
    def __init__(self, broker: Broker, files: CleanFiles) -> None:
        self._broker = broker
        self.files = files
        files.on_removed = broker.key_index.clean_file_went
        self.execute: Callable[[Task], Iterator[Output]] = partial(cleaning.run, broker.fs)
        """Does a task, in a thread. To be replaced by whoever has a better place for it."""
        self.on_due: Callable[[], object] = lambda: None
        """Called when it is to be looked at once whether there is something to clean."""
        self._due = False
        self._looking: Iterator[None] | None = None
        """A walk over all partitions, in slices."""
        self._due_ms = broker.clock.mono_ms() + broker.settings.log.cleaner.interval_ms
        self._outputs: Iterator[Output] | None = None
        self._task: Task | None = None
        self.named: Set[str] = frozenset()
        """Paths of index files that the task names. They stay if they are merged meanwhile: its process begins with
        Python's start, and under a steady load on a busy machine they would be gone each time before it opens them."""
        self._step_bytes = 0
        """What the task's next file may take of the disk."""
        self._guards: list[memoryview] = []
        """They keep the files that a task reads from being reused."""
        self._busy = False
        self._nothing_to_empty: tuple[int, int, int, int] | None = None
        """How things stood when the oldest segments were looked at in vain."""
        self.published = 0
        """Files, and what has left nothing."""
        self.counts = Counts()
        """Of all tasks since the start."""
        self.tasks = 0
        self.failures = 0
        self.moved_batches_lost = 0

    @property
    def file_bytes(self) -> int:
        return min(FILE_BYTES, self._broker.settings.log.segment_bytes)

    # -- doing it ----------------------------------------------------------------------------------------------------

    def turn(self) -> None:
        """The clock's turn, every few seconds."""
        now_ms = self._broker.clock.mono_ms()
        if now_ms >= self._due_ms:
            self._due_ms = now_ms + self._broker.settings.log.cleaner.interval_ms
            self._due = self._broker.settings.log.cleaner.enable
            if not self._due:
                self._condemn()

    def configured(self) -> None:
        """What is to be cleaned may be other than before."""
        self._due = self._broker.settings.log.cleaner.enable
        self.on_due()

    def look(self) -> bool:
        """A slice of looking at all partitions, if something is to be looked for; returns whether there is more to look
        at. What is found, `next_job` gives."""
        if self._looking is None and self._wants_plan():
            self._looking = self._plan()
        if self._looking is not None and next(self._looking, _OVER) is _OVER:
            self._looking = None
        return self._looking is not None or self._wants_plan()

    def _wants_plan(self) -> bool:
        return self._due and self._task is None and not self._busy

    def next_job(self) -> Job[object] | None:
        """The next step of what is to be done, if none is under way: for a thread of its own."""
        if self._busy or self._looking is not None or self._outputs is None or self._broker.log.failed is not None:
            return None
        self._busy = True
        return Job("cleaning", self._step, self._stepped, self._failed)  # type: ignore[arg-type]

    def _begin(self, task: Task) -> None:
        self._task = task
        self.named = {path for work in task.works for path, _, _ in work.sources}
        self._outputs = self.execute(task)
        self.tasks += 1
        starts = {start for start, _, _ in task.segments}
        log = self._broker.log
        self._guards = [each.view[:0] for each in (*log.segments, *log.cleaned) if each.start in starts]

    def _step(self) -> tuple[Output, CleanFile | None] | None:
        """In a thread: the next file, under its name. What is copied gives nothing back before the whole task is done,
        so it is looked for each file whether there is room."""
        assert self._outputs is not None
        try:
            self._check_room(self._step_bytes)
            output = next(self._outputs, None)
            if output is None:
                return None
            return output, cleaning.adopt(self._broker.fs, output.record) if output.has_file else None
        except Exception:
            _close(self._outputs)  # here, since a process that is ended may be waiting for the disk
            raise

    def _check_room(self, nbytes: int) -> None:
        """Raises NoRoomError."""
        if self._broker.fs.free_bytes() < self._broker.log.low_disk_bytes + nbytes:
            raise NoRoomError

    def _stepped(self, found: tuple[Output, CleanFile | None] | None) -> None:
        self._busy = False
        if found is None:
            self._end()
            self._broker.housekeeping.drop_segments()
            return
        try:
            self._publish(*found)
        except BrokerError as error:
            if found[1] is not None:  # what nobody knows of is a leftover
                found[1].segment.mapping.release()
                found[1].segment.file.close()
            self._give_up(error)

    def _publish(self, output: Output, file: CleanFile | None) -> None:
        """Raises BrokerError where the log takes nothing any more."""
        broker, record = self._broker, output.record
        broker.append_control(record)
        self.published += 1
        if file is not None:
            self.files.add(file)
            broker.key_index.clean_file_came(record.start, has_indexed=output.has_indexed)
        for each in record.moved:
            partition = broker.catalog.partition(each.number, each.partition)
            if partition is not None:
                self.files.attach(partition)
        for name in Counts.__struct_fields__:
            setattr(self.counts, name, getattr(self.counts, name) + getattr(output.counts, name))
        self.moved_batches_lost += len(record.lost)
        self._condemn()

    def _failed(self, error: Exception) -> None:
        self._busy = False
        self._give_up(error)

    def _give_up(self, error: Exception) -> None:
        if isinstance(error, SourceGoneError) and self._is_outdated():
            self._broker.logger.info("cleaning is planned again: %s", error)
        elif isinstance(error, NoRoomError):
            self._wait(error)
        else:
            self.failures += 1
            self._due = False
            self._broker.housekeeping.problems.append(f"cleaning failed: {error}")
            self._broker.logger.error("cleaning failed, trying again later: %s", error)
        self._end()
        self._broker.housekeeping.drop_segments()

    def _wait(self, error: NoRoomError) -> None:
        self._due = False
        self._broker.housekeeping.problems.append(str(error))

    def _end(self) -> None:
        outputs, self._outputs = self._outputs, None
        self._task = None
        self._guards = []
        self.named = frozenset()
        if outputs is not None:
            _close(outputs)
        self._broker.housekeeping.indexes.remove_kept()

    def problems(self) -> list[str]:
        return [f"clean file {start} is missing" for start in self.files.lost]

    def stop(self) -> None:
        """Nothing more is written. What was being written is left over."""
        self._due = False
        self._looking = None
        if not self._busy:
            self._end()

    # -- planning ----------------------------------------------------------------------------------------------------

    def _condemn(self) -> None:
        self._looking = self.files.condemning(self._broker.catalog, SLICE)

    def _plan(self) -> Iterator[None]:
        """Begin the next task, or there is none."""
        yield from self.files.condemning(self._broker.catalog, SLICE)
        for find in (self._compaction, self._emptying, self._tidying):
            works = yield from find()
            if works:
                task = self._task_of(works)
                if task is None:
                    break
                self._begin(task)
                return
        self._due = False

    def _task_of(self, works: list[Work]) -> Task | None:
        """None where there is nothing to do after all, or not enough disk for it."""
        broker = self._broker
        log, settings = broker.log, broker.settings.log
        files = self._index_files()
        # What has been merged, has expired or was deleted since it was looked at may come with the next task.
        works = [
            work
            for work in works
            if broker.catalog.partition(work.number, work.partition) is not None
            and all(path in files for path, _, _ in work.sources)
        ]
        if not works:
            return None
        size = sum(self._bytes_of(work) for work in works)
        try:
            self._check_room(min(size, 2 * self.file_bytes))
        except NoRoomError as error:
            self._wait(error)
            return None
        self._step_bytes = min(size, self.file_bytes)
        starts = {log.segment_at(files[path].start).start for work in works for path, _, _ in work.sources}
        segments = [(each.start, each.end, self._path_of(each.start)) for each in (*log.segments, *log.cleaned)]
        works.sort(key=lambda work: (work.number, work.partition, work.from_offset))
        return Task(
            works, [each for each in segments if each[0] in starts], broker.catalog.next_clean,
            broker.clock.wall_ms(), self.file_bytes, settings.cleaner.memory_bytes,
        )  # fmt: skip

    def _index_files(self) -> dict[str, IndexFile]:
        """All that tell where something stands, by path."""
        files = {file.path: file for file in self._broker.housekeeping.indexes.files}
        return files | {file.indexed.path: file.indexed for file in self.files}

    def _is_outdated(self) -> bool:
        """Whether something that the task was to read has expired meanwhile."""
        assert self._task is not None
        log, indexes = self._broker.log, self._index_files()
        segments = {each.start for each in (*log.segments, *log.cleaned)}
        return any(start not in segments for start, _, _ in self._task.segments) or any(
            path not in indexes for work in self._task.works for path, _, _ in work.sources
        )

    def _path_of(self, start: int) -> str:
        return data_path(start) if start >= CLEAN_BASE else segment_path(start)

    def _bytes_of(self, work: Work) -> int:
        partition = self._broker.catalog.partition(work.number, work.partition)
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
        for nth, partition in enumerate(self._broker.catalog.partitions()):
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
        now_ms = self._broker.clock.wall_ms()
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
        segment = self._broker.log.segment_at(position)
        at = position - segment.start
        found = before_payload(segment.view[max(0, at - BEFORE_BYTES) : at], position)
        overdue = found is not None and found[0] + longest_ms <= now_ms
        if overdue and run.file is None:
            self._broker.housekeeping.freeze()
        return overdue

    # -- emptying ----------------------------------------------------------------------------------------------------

    def _emptying(self) -> Found:
        """Of the oldest segments, as many as are mostly dead together."""
        broker = self._broker
        log, indexes = broker.log, broker.housekeeping.indexes
        state: tuple[int, int, int, int] | None
        state = log.segments[-1].start, broker.housekeeping.start_offset_moves, broker.catalog.changes, self.published
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
                    if nth % SLICE == SLICE - 1:
                        yield
                yield
            if covered != segment.end:  # it is not indexed yet
                state = None
                break
            size += segment.size
            if size - live >= broker.settings.log.cleaner.min_dead_ratio * size and size - live >= log.segment_bytes:
                taken |= ends
                ends = {}
        works: list[Work] = []
        planned = 0
        for key, end in sorted(taken.items()):
            partition = broker.catalog.partition(*key)
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
        partition = self._broker.catalog.partition(*key)
        return None if partition is None else run.behind(max(partition.start_offset, partition.moved_upto))

    # -- tidying -----------------------------------------------------------------------------------------------------

    def _tidying(self) -> Found:
        """Of one clean file that is mostly dead, or of many small ones."""
        ranges: dict[int, list[tuple[Partition, int, int]]] = {}
        live: dict[int, int] = {}
        for nth, partition in enumerate(self._broker.catalog.partitions() if len(self.files) else ()):
            for low, high, start in partition.cleaned:
                ranges.setdefault(start, []).append((partition, max(low, _first_base(partition)), high))
                read_from = max(low, partition.start_offset)
                live[start] = live.get(start, 0) + sum(map(_size, _runs(partition, read_from, high)))
            if nth % SLICE == SLICE - 1:
                yield
        small: list[int] = []
        for file in self.files:
            start, size = file.segment.start, file.segment.size
            if start not in ranges:
                continue
            whole = sum(map(_size, file.indexed.runs.values()))
            if live[start] < (1 - self._broker.settings.log.cleaner.min_dead_ratio) * whole:
                return [self._work(*each) for each in ranges[start]]
            if size <= self.file_bytes // SMALL_SHARE and len(ranges[start]) <= MOST_WORKS // SMALL_FILES:
                small.append(start)
            yield
        if len(small) < SMALL_FILES:
            return []
        return [self._work(*each) for start in small[: 2 * SMALL_SHARE] for each in ranges[start]]


def _close(outputs: Iterator[Output]) -> None:
    close = getattr(outputs, "close", None)
    if close is not None:
        with contextlib.suppress(OSError):
            close()


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
