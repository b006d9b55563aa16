"""Streaming queries, run to their end or until somebody stops them, with every batch told of as it is finished.

What a batch did comes from Spark's StreamingQueryListener. Its events arrive in a thread of py4j's (with Spark Connect:
of the client's); here they only pass through a queue to the thread that called `run`, so that what is done with them,
printing or writing a group's offsets, needs no locks and may take its time.
"""

from __future__ import annotations

import ast
import json
import queue
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming import DataStreamWriter, StreamingQuery
from pyspark.sql.streaming.listener import StreamingQueryListener

from halfmoon.pipeline.admin import TopicOffsets
from halfmoon.pipeline.errors import PipelineError
from halfmoon.pipeline.failures import reason
from halfmoon.pipeline.offsets import offsets_of, read_by_all

_POLL_S = 0.1
_LAST_EVENTS_S = 10
"""How long the events of a query that has ended are waited for."""
AT_ONCE = 8
"""Queries that run to their end, side by side: each has a consumer per partition, and a driver has so much memory."""


@dataclass(slots=True, frozen=True)
class Batch:
    """What one micro-batch did."""

    query: str
    number: int
    rows: int
    """Read from topics."""
    seconds: float
    ends: TopicOffsets
    """The offsets after what the query has read."""
    lag: int
    """Records that were in the topics, and not read yet, when the batch began."""

    @property
    def rows_per_s(self) -> float:
        return self.rows / self.seconds if self.seconds else 0.0


@dataclass(slots=True)
class Totals:
    """What the batches of one query did in this run."""

    rows: int = 0
    batches: int = 0
    ends: TopicOffsets = field(default_factory=dict)


OnBatch = Callable[[Batch], None]


def batch_of(progress: Any) -> Batch:
    """A StreamingQueryProgress in our words. Sources that are no topics count with their rows alone."""
    sources = [(_offsets(source.endOffset), _offsets(source.latestOffset)) for source in progress.sources]
    lag = sum(
        max(0, at - end[topic].get(partition, at))
        for end, latest in sources
        for topic in end
        for partition, at in latest.get(topic, {}).items()
    )
    seconds = progress.durationMs.get("triggerExecution", 0) / 1000
    name = progress.name or str(progress.id)
    return Batch(name, progress.batchId, progress.numInputRows, seconds, read_by_all(end for end, _ in sources), lag)


def _offsets(text: str | None) -> TopicOffsets:
    """What a Kafka source calls an offset, {topic: {partition: offset}}; empty for what is none.

    Spark Connect's client hands out Python's way to write it instead of JSON (SourceProgress.fromJson).
    """
    try:
        found = ast.literal_eval(text or "") if (text or "").startswith("{'") else json.loads(text or "null")
        return offsets_of(found or {})
    except (ValueError, SyntaxError, AttributeError):
        return {}


class Queries:
    """The queries of one run. `on_batch` hears of every batch that read something; leaving the block stops them."""

    def __init__(self, spark: SparkSession, on_batch: OnBatch | None = None) -> None:
        self._spark = spark
        self.on_batch = on_batch
        self._listener = _Listener()
        self._running: dict[str, StreamingQuery] = {}
        self._names: dict[str, str] = {}
        self._waiting: deque[tuple[str, DataStreamWriter]] = deque()
        self._until_ended = True
        self.totals: dict[str, Totals] = {}
        """By name of the query."""

    def __enter__(self) -> Queries:
        self._spark.streams.addListener(self._listener)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        try:
            for running in self._running.values():
                running.stop()
            self._spark.streams.removeListener(self._listener)
        except Exception:
            if error is None:
                raise  # Else what ended the block says more than a session that cannot be reached any more.

    def start(self, name: str, writer: DataStreamWriter, checkpoint: str, every: str | None = None) -> None:
        """Start a query of that name: what there is now, and it ends; or, with `every` ("10 seconds"), on and on.

        Of those that end, eight run at once; the others wait for `run`.
        """
        writer = writer.queryName(name).option("checkpointLocation", checkpoint)
        writer = writer.trigger(availableNow=True) if every is None else writer.trigger(processingTime=every)
        self._until_ended = every is None
        self.totals[name] = Totals()
        self._waiting.append((name, writer))
        self._start_waiting()

    def run(self, on_tick: Callable[[], None] | None = None) -> dict[str, Totals]:
        """Until all queries have ended; what each did. `on_tick` is called some times a second; what it raises ends the
        run.

        Raises PipelineError with Spark's reason if a query failed: at once where they would run on and on, else after
        the others have ended.
        """
        failures: list[str] = []
        while self._running:
            self._drain(_POLL_S)
            if on_tick is not None:
                on_tick()
            for run_id, query in [(run_id, query) for run_id, query in self._running.items() if not query.isActive]:
                why = self._end(run_id, query)
                if why is not None:
                    failures.append(f"{self._names[run_id]}: {why}")
                self._start_waiting()
            if failures and not self._until_ended:
                break
        if failures:
            raise PipelineError("; ".join(failures))
        return self.totals

    def _start_waiting(self) -> None:
        while self._waiting and (len(self._running) < AT_ONCE or not self._until_ended):
            name, writer = self._waiting.popleft()
            started = writer.start()
            self._running[str(started.runId)] = started
            self._names[str(started.runId)] = name

    def _end(self, run_id: str, query: StreamingQuery) -> str | None:
        """A query that is not active: hear the rest of its events; why it failed, if it did."""
        deadline = time.monotonic() + _LAST_EVENTS_S
        while run_id not in self._listener.ended and time.monotonic() < deadline:
            self._drain(_POLL_S)
        self._drain(0)
        del self._running[run_id]
        try:
            query.awaitTermination()
        except StreamingQueryException as failed:
            return reason(failed)
        return None

    def _drain(self, wait_s: float) -> None:
        try:
            while True:
                run_id, progress = self._listener.events.get(timeout=wait_s)
                wait_s = 0
                name = self._names.get(run_id)
                if name is not None and progress.numInputRows:
                    self._count(name, batch_of(progress))
        except queue.Empty:
            pass

    def _count(self, name: str, batch: Batch) -> None:
        totals = self.totals[name]
        totals.rows += batch.rows
        totals.batches += 1
        totals.ends.update(batch.ends)
        if self.on_batch is not None:
            self.on_batch(batch)


class _Listener(StreamingQueryListener):
    def __init__(self) -> None:
        self.events: queue.SimpleQueue[tuple[str, Any]] = queue.SimpleQueue()
        self.ended: set[str] = set()

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802
        pass

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802
        self.events.put((str(event.progress.runId), event.progress))

    def onQueryIdle(self, event: Any) -> None:  # noqa: N802
        pass

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802
        self.ended.add(str(event.runId))
