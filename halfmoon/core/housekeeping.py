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
from itertools import chain
from typing import Final, TypeVar

from halfmoon.config.settings import Settings
from halfmoon.core.append import Appender
from halfmoon.core.catalog import snapshot
from halfmoon.core.catalog.catalog import Catalog
from halfmoon.core.checkpoints import Checkpoints
from halfmoon.core.clean_files import CleanFiles
from halfmoon.core.clock import Clock
from halfmoon.core.dispatch import Frozen, adopt, write_index
from halfmoon.core.features import Features
from halfmoon.core.index_files import IndexFiles
from halfmoon.core.jobs import Job
from halfmoon.core.live import Live
from halfmoon.core.retention import Retention
from halfmoon.core.storage.index import IndexFile
from halfmoon.core.storage.segment import Removed
from halfmoon.core.storage.storage import WriteSide
from halfmoon.core.turn import Turn
from halfmoon.errors import BrokerError

T = TypeVar("T")
_OVER: Final = object()


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
        self._logger = logger
        self._checkpoints = Checkpoints(log, catalog, turn, live, clock)
        self.problems: list[str] = []
        """Since the last `turn`, a sentence each."""
        self._retention = Retention(log, catalog, indexes, clean_files, appender, clock, self.problems)
        self._features = Features()
        self._steps: Iterator[None] | None = None
        """The rest of a job, in slices in the loop."""
        self._running = False
        self._resting = False
        """A job failed; nothing is tried before the next `turn`."""
        self._retaining: Iterator[None] | None = None

    def bind(self, features: Features) -> None:
        self._features = self._retention.features = features
        self._clean_files.derived = features.derived

    @property
    def start_offset_moves(self) -> int:
        return self._retention.start_offset_moves

    def opened(self) -> None:
        """The log is recovered."""
        self._checkpoints.opened()

    def plan(self) -> None:
        """Ask for a freeze where enough was appended since the last. Cheap; called after every write."""
        self._checkpoints.plan()

    def freeze(self) -> None:
        """Have all that was appended so far indexed soon."""
        self._checkpoints.freeze()

    def turn(self) -> None:
        """The clock's turn, every few seconds: begin what time alone makes due."""
        self._resting = False
        self.problems.clear()
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
        self._checkpoints.turn()

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
        remove = None if self._steps is not None else self._begin_removal()
        if self._steps is not None:
            return self._job("slices in the loop", _nothing, lambda _: self._step())
        if remove is not None:
            return self._job("removing a file", remove, log.removed)
        if log.wants_spare():
            return self._job("allocating a segment", log.begin_spare(), log.take_spare, lambda: log.take_spare(None))
        if dispatch.closing:
            return self._job("closing index tails", _nothing, lambda _: dispatch.close_some())
        if dispatch.frozen and dispatch.frozen[0].end <= log.flushed:
            frozen = dispatch.frozen[0]
            return self._job(
                "writing an index",
                lambda: self._write(frozen),
                lambda file: self._do(self._adopt(frozen, file)),
            )
        if self._checkpoints.is_preparing:
            return self._job("preparing a checkpoint", _nothing, lambda _: self._checkpoints.prepare())
        files = self.indexes.mergeable(log.segments)
        if files:
            return self._job(
                "merging indexes",
                lambda: self.indexes.merge(files),
                lambda merged: self._do(self.indexes.replace(files, merged, self._catalog)),
            )
        return None

    def _do(self, steps: Iterator[None]) -> None:
        """In the loop: the first slice now, each further one is a job of its own. Behind others, all of them are."""
        if self._steps is None:
            self._steps = steps
            self._step()
        else:
            self._steps = chain(self._steps, steps)

    def _step(self) -> None:
        steps, self._steps = self._steps, None
        if steps is not None and next(steps, _OVER) is not _OVER:  # else a clean stop has ended them
            self._steps = steps

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

    def _adopt(self, frozen: Frozen, file: IndexFile) -> Iterator[None]:
        yield from adopt(frozen, file)
        taken = self._turn.dispatch.frozen.popleft()
        assert taken is frozen
        self.indexes.add(file)

    def finish(self, checkpoint: bytes) -> None:
        """At a clean stop, everything flushed: write all that is left, waiting for it. Raises OSError."""
        fs, dispatch, end = self._log.fs, self._turn.dispatch, self._log.end
        while self._steps is not None:
            self._step()
        dispatch.freeze_at(end)
        dispatch.run((), end, {})
        dispatch.close_all()
        while dispatch.frozen:
            frozen = dispatch.frozen[0]
            for _ in self._adopt(frozen, write_index(fs, frozen)):
                pass
        snapshot.save(fs, checkpoint)

    # -- retention ---------------------------------------------------------------------------------------------------

    def retain(self) -> bool:
        """A slice of retention's walk. Returns whether it is over; then wait for the interval before the next call."""
        if self._retaining is None:
            self._retaining = self._retention.walk()
        try:
            next(self._retaining)
        except StopIteration:
            self._retaining = None
            return True
        return False

    def drop_segments(self) -> None:
        """Have the oldest segments in which nothing lives removed soon."""
        self._do(self._retention.find_dead())

    @property
    def may_remove(self) -> bool:
        """Whether files may go now that the log is on disk so far."""
        return self._retention.frees_log or self._clean_files.may_drop

    def _begin_removal(self) -> Callable[[], Removed] | None:
        """For a thread: it removes the next file that may go. A job for each, so that nobody waits for many."""
        log = self._log
        remove = log.begin_removal()
        if remove is None:
            dead = self._retention.dead()
            if dead is not None:
                self._do(dead)
            else:
                self._clean_files.drop_unneeded(self._catalog)
            remove = log.begin_removal()
        return remove


def _nothing() -> None:
    """For the thread of a job that is done in the loop: others have their turn meanwhile."""
