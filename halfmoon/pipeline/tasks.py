"""How many of its tasks Spark has done, told while this program waits for it.

A query is one call that returns when all is done. Meanwhile Spark counts tasks: a share of a topic each where topics
are read. Where the driver is this program, its status tracker is asked some times a second, from a thread; a Spark
Connect server tells of them itself, in the thread that waits (Spark 4.0 and later).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from halfmoon.pipeline.connect import is_connected

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

POLL_S = 0.5

_END_S = 2.0
"""An answer of the JVM that is under way when the block ends is waited for so long."""

OnTasks = Callable[[int, int], None]
"""So many tasks are done, of so many that are known: later stages add theirs. Called some times a second."""


@contextmanager
def tasks_told(spark: SparkSession, on_tasks: OnTasks) -> Iterator[None]:
    """Tell of the tasks that run while the block does: all of the session's, also those of other threads."""
    watch = _told_by_server if is_connected(spark) else _asked
    with watch(spark, _Counted(on_tasks)):
        yield


class _Counted:
    """The sum over all stages that were ever seen. One that is not active any more has done its tasks."""

    def __init__(self, on_tasks: OnTasks) -> None:
        self._on_tasks = on_tasks
        self._stages: dict[int, tuple[int, int]] = {}

    def active(self, stages: Iterable[tuple[int, int, int]]) -> None:
        """(id, tasks done, all its tasks) of each stage that is active now."""
        now = {stage: (min(done, of), of) for stage, done, of in stages}
        ended = {stage: (of, of) for stage, (_, of) in self._stages.items() if stage not in now}
        self._stages = ended | now
        if self._stages:
            # Also where nothing is new: that somebody is there is news, too.
            self._on_tasks(*(sum(counts) for counts in zip(*self._stages.values(), strict=True)))


@contextmanager
def _asked(spark: SparkSession, counted: _Counted) -> Iterator[None]:
    from pyspark import InheritableThread

    tracker = spark.sparkContext.statusTracker()
    over = threading.Event()

    def watch() -> None:
        while not over.wait(POLL_S):
            try:
                infos = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
            except Exception:
                return  # The JVM has gone, which the query itself will say.
            counted.active((each.stageId, each.numCompletedTasks, each.numTasks) for each in infos if each is not None)

    thread = InheritableThread(watch, name="halfmoon-tasks", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(_END_S)


@contextmanager
def _told_by_server(spark: SparkSession, counted: _Counted) -> Iterator[None]:
    if not hasattr(spark, "registerProgressHandler"):
        yield  # Spark 3.5's servers do not tell.
        return

    def told(stages: Iterable[Any], **_: Any) -> None:
        counted.active((each.stage_id, each.num_completed_tasks, each.num_tasks) for each in stages)

    spark.registerProgressHandler(told)
    try:
        yield
    finally:
        spark.removeProgressHandler(told)
