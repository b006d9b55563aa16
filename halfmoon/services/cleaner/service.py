"""Puts compacted segments in place of what they were made from (B08): the service behind log compaction, and behind
giving disk back that mostly dead segments keep.

What is to be done: planning.py. How the files are written: cleaning.py, in a thread or a process of its own. What they
are: core/clean_files.py.

A finished file is published by one control record; then reads find it, and what it was made from is dead. That is
removed when the record is on disk. Offsets, and what frames say of where their batches come from, do not change. What
completes a scheduled message may go with its frame: the set of those that wait is in the snapshot at the head of each
segment.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator
from functools import partial

from halfmoon.config.settings import Settings
from halfmoon.core.append import Appender
from halfmoon.core.catalog.catalog import Catalog
from halfmoon.core.catalog.topics import Topic
from halfmoon.core.clean_files import CleanFile, CleanFiles
from halfmoon.core.clock import Clock
from halfmoon.core.features import Feature, TopicPolicy
from halfmoon.core.housekeeping import Housekeeping
from halfmoon.core.jobs import Job
from halfmoon.core.live import Live
from halfmoon.core.storage.storage import WriteSide
from halfmoon.errors import BrokerError
from halfmoon.services.cleaner import cleaning, metrics, planning
from halfmoon.services.cleaner.planning import NoRoomError, Plan, Planner, check_room
from halfmoon.services.cleaner.reading import SourceGoneError
from halfmoon.services.cleaner.tasks import Counts, Output, Task

_OVER = object()


class Cleaner:
    def __init__(
        self,
        log: WriteSide,
        catalog: Catalog,
        files: CleanFiles,
        housekeeping: Housekeeping,
        appender: Appender,
        live: Live[Settings],
        clock: Clock,
        logger: logging.Logger,
    ) -> None:
        self._log = log
        self._catalog = catalog
        self.files = files
        self._housekeeping = housekeeping
        self._appender = appender
        self._live = live
        self._clock = clock
        self._logger = logger
        self.planner = Planner(log, catalog, files, housekeeping, live, clock)
        self.execute: Callable[[Task], Iterator[Output]] = partial(cleaning.run, log.fs)
        """Does a task, in a thread. To be replaced by whoever has a better place for it."""
        self.on_due: Callable[[], object] = lambda: None
        """Called when it is to be looked at once whether there is something to clean."""
        self._due = False
        self._looking: Iterator[None] | None = None
        """A walk over all partitions, in slices."""
        self._due_ms = clock.mono_ms() + self.interval_ms
        self._unsubscribe: Callable[[], None] = lambda: None
        self._outputs: Iterator[Output] | None = None
        self._task: Task | None = None
        self._step_bytes = 0
        """What the task's next file may take of the disk."""
        self._guards: list[memoryview] = []
        """They keep the files that a task reads from being reused."""
        self._busy = False
        self.published = 0
        """Files, and what has left nothing."""
        self.counts = Counts()
        """Of all tasks since the start."""
        self.tasks = 0
        self.failures = 0
        self.moved_batches_lost = 0

    def feature(self) -> Feature:
        return Feature(
            "cleaner",
            start=self._start,
            stop=self.stop,
            topics=TopicPolicy(configured=self._topic_configured),
            background=self,
            families=metrics.FAMILIES,
            read_metrics=partial(metrics.read, self),
        )

    @property
    def interval_ms(self) -> int:
        """How often it is looked whether there is something to do."""
        return self._live.current.log.cleaner.interval_ms

    @property
    def file_bytes(self) -> int:
        """No file becomes larger."""
        return self.planner.file_bytes

    # -- doing it ----------------------------------------------------------------------------------------------------

    def turn(self) -> None:
        """The clock's turn, every few seconds."""
        now_ms = self._clock.mono_ms()
        if now_ms >= self._due_ms:
            self._due_ms = now_ms + self.interval_ms
            self._due = self._live.current.log.cleaner.enable
            if not self._due:
                self._find_unneeded()

    def configured(self) -> None:
        """What is to be cleaned may be other than before."""
        self._due = self._live.current.log.cleaner.enable
        self.on_due()

    def _topic_configured(self, topic: Topic) -> None:
        if topic.rules.compacts:
            self.configured()

    def look(self) -> bool:
        """A slice of looking at all partitions, if something is to be looked for; returns whether there is more to look
        at. What is found, `next_job` gives."""
        if self._looking is None and self._wants_plan():
            self._looking = self._plan()
        if self._looking is not None and next(self._looking, _OVER) is _OVER:
            self._looking = None
        return self._looking is not None or self._wants_plan()

    def _wants_plan(self) -> bool:
        return self._due and self._task is None and not self._busy and self._log.failed is None

    def next_job(self) -> Job[object] | None:
        """The next step of what is to be done, if none is under way: for a thread of its own."""
        if self._busy or self._looking is not None or self._outputs is None:
            return None
        self._busy = True
        return Job("cleaning", self._step, self._stepped, self._failed)  # type: ignore[arg-type]

    def _begin(self, plan: Plan) -> None:
        task, self._step_bytes = plan
        self._task = task
        # A process begins with Python's start, and under a steady load on a busy machine index files that are merged
        # meanwhile would be gone each time before it opens them.
        self._housekeeping.indexes.keep({path for work in task.works for path, _, _ in work.sources})
        self._outputs = self.execute(task)
        self.tasks += 1
        starts = {start for start, _, _ in task.segments}
        log = self._log
        self._guards = [each.view[:0] for each in (*log.segments, *log.cleaned) if each.start in starts]

    def _step(self) -> tuple[Output, CleanFile | None] | None:
        """In a thread: the next file, under its name. What is copied gives nothing back before the whole task is done,
        so it is looked for each file whether there is room. Where the log takes nothing any more, the task ends: others
        may wait for their turn."""
        assert self._outputs is not None
        if self._log.failed is not None:
            _close(self._outputs)
            return None
        try:
            check_room(self._log, self._step_bytes)
            output = next(self._outputs, None)
            if output is None:
                return None
            return output, cleaning.adopt(self._log.fs, output.record) if output.has_file else None
        except Exception:
            _close(self._outputs)  # here, since a process that is ended may be waiting for the disk
            raise

    def _stepped(self, found: tuple[Output, CleanFile | None] | None) -> None:
        self._busy = False
        if found is None:
            self._end()
            self._housekeeping.drop_segments()
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
        record = output.record
        self._appender.append_control(record)
        self.published += 1
        if file is not None:
            self.files.add(file, has_indexed=output.has_indexed)
        for each in record.moved:
            partition = self._catalog.partition(each.number, each.partition)
            if partition is not None:
                self.files.attach(partition)
        for name in Counts.__struct_fields__:
            setattr(self.counts, name, getattr(self.counts, name) + getattr(output.counts, name))
        self.moved_batches_lost += len(record.lost)
        self._find_unneeded()

    def _failed(self, error: Exception) -> None:
        self._busy = False
        self._give_up(error)

    def _give_up(self, error: Exception) -> None:
        if isinstance(error, SourceGoneError) and self._task is not None and self.planner.is_outdated(self._task):
            self._logger.info("event=cleaning_rescheduled reason=%s", error)
        elif isinstance(error, NoRoomError):
            self._wait(error)
        else:
            self.failures += 1
            self._due = False
            self._housekeeping.problems.append(f"cleaning failed: {error}")
            self._logger.error("event=cleaning_failed error=%s", error)
        self._end()
        self._housekeeping.drop_segments()

    def _wait(self, error: NoRoomError) -> None:
        self._due = False
        self._housekeeping.problems.append(str(error))

    def _end(self) -> None:
        outputs, self._outputs = self._outputs, None
        self._task = None
        self._guards = []
        if outputs is not None:
            _close(outputs)
        self._housekeeping.indexes.release()

    def _start(self) -> None:
        self._unsubscribe = self._live.subscribe(lambda _settings: self.configured())

    def stop(self) -> None:
        """Nothing more is written. What was being written is left over."""
        self._unsubscribe()
        self._due = False
        self._looking = None
        if not self._busy:
            self._end()

    # -- planning ----------------------------------------------------------------------------------------------------

    def _find_unneeded(self) -> None:
        self._looking = self.files.find_unneeded(self._catalog, planning.SLICE)

    def _plan(self) -> Iterator[None]:
        """Begin the next task, or there is none."""
        yield from self.files.find_unneeded(self._catalog, planning.SLICE)
        try:
            plan = yield from self.planner.plan(self.published)
        except NoRoomError as error:
            self._wait(error)
            return
        if plan is None:
            self._due = False
        else:
            self._begin(plan)


def _close(outputs: Iterator[Output]) -> None:
    close = getattr(outputs, "close", None)
    if close is not None:
        with contextlib.suppress(OSError):
            close()
