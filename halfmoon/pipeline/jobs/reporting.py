"""Reports made: from all that topics hold now, or from a stream that goes on where it stopped.

As a batch, everything is read anew each time. As a stream, what a report needs is kept in a Parquet table, exactly once
(ingest.py), and the report is made from that: a run reads only what is new, may be killed at any moment, and knows of
records that the topic no longer has.

    OUT/success-rate.html               the page; opens without a network
    OUT/tables/NAME.parquet .csv .md    each report
    OUT/charts/NAME.png                 the charts
    OUT/_success-rate/                  of a stream: its table and its checkpoint
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from halfmoon.pipeline.admin import Admin
from halfmoon.pipeline.brokers import Bootstrap
from halfmoon.pipeline.checkpoint import watermark_of
from halfmoon.pipeline.errors import PipelineError
from halfmoon.pipeline.files import LocalFiles
from halfmoon.pipeline.group_progress import group_writer
from halfmoon.pipeline.ingest import ingest
from halfmoon.pipeline.jobs.report_kinds import Kind
from halfmoon.pipeline.offsets import Position
from halfmoon.pipeline.queries import Batch, OnBatch
from halfmoon.pipeline.reports.flight_charts import flight_charts
from halfmoon.pipeline.reports.flight_facts import flight_facts
from halfmoon.pipeline.reports.flight_reports import fewest_on_a_route, flight_parts
from halfmoon.pipeline.reports.flights import REFERENCE_SCHEMAS, enrich, reference_tables, typed_flights
from halfmoon.pipeline.reports.parts import Part
from halfmoon.pipeline.reports.publish import PUBLISH_EVERY_S, OnReport, Published, publish
from halfmoon.pipeline.reports.report import Report, one_line
from halfmoon.pipeline.reports.unfinished import UnfinishedPage, unfinished_page
from halfmoon.pipeline.steps import OnStep, Steps, ignored
from halfmoon.pipeline.tasks import tasks_told
from halfmoon.pipeline.topics import read_stream, read_topic

_DRAWING = "Tables, charts and the page"


def report(
    spark: SparkSession,
    kind: Kind,
    out: Path,
    *,
    bootstrap: Bootstrap = None,
    start: Position = "earliest",
    end: Position = "latest",
    source: str = "",
    on_step: OnStep = ignored,
) -> Published:
    """Make a report from what the topics hold between `start` and `end`. Raises PipelineError.

    `on_step` hears how far it is, and the page shows it until the report is there.
    """
    with _BatchRead(spark, bootstrap, start, end) as read:
        kept = kind.keep(read)
        with unfinished_page(out, kind.name, kind.title, source) as page:
            rows, as_of = read.once(kept.rows), cache(kept.as_of)
            return _publish(kind, rows, as_of, out, source, on_step, page, _reading(kind))


def report_stream(
    spark: SparkSession,
    kind: Kind,
    out: Path,
    *,
    bootstrap: Bootstrap = None,
    start: Position = "earliest",
    every: str | None = None,
    batch_records: int | None = None,
    group: str | None = None,
    allow_data_loss: bool = False,
    source: str = "",
    on_batch: OnBatch | None = None,
    on_publish: Callable[[Published], None] = lambda _: None,
    on_tick: Callable[[], None] | None = None,
    on_step: OnStep = ignored,
) -> Published:
    """Read what is new in the topics, and make the report from all that was ever read. `start` counts for the first
    run.

    With `every` ("10 seconds") it goes on, and makes the report anew after batches, every ten seconds at most, until
    `on_tick`, which is called some times a second, raises something. `group` is where the progress is shown as a
    consumer group's offsets. `allow_data_loss` goes on where the topics have lost records that had not been read yet.
    `on_step` hears how far each making is; the page shows how far the first one of this run is.

    Raises PipelineError; also for an OUT of other topics (one that was made anew is another), or of other rules.
    """
    folder = out.absolute() / f"_{kind.name}"
    table, checkpoint = folder / "table", folder / "checkpoint"
    _check_kept(Admin(bootstrap), kind, folder)
    show_progress = group_writer(Admin(bootstrap), group) if group else None
    kept = kind.keep(_StreamRead(spark, bootstrap, start, batch_records, allow_data_loss)).rows
    changed, records, published_at = False, 0, time.monotonic()

    with unfinished_page(out, kind.name, kind.title, source) as page:
        reading = Steps([_reading(kind)], on_step, page)

        def finished(batch: Batch) -> None:
            nonlocal changed, records
            changed = True
            records += batch.rows
            reading.at(records, records + batch.lag if every is None else None, "records")
            if show_progress is not None:
                show_progress(batch.ends)
            if on_batch is not None:
                on_batch(batch)

        def made() -> Published:
            if records and not checkpoint.is_dir():
                raise PipelineError(
                    f"{checkpoint} is not to be seen from here: a stream needs a disk that Spark shares"
                )
            # Before the table: what the watermark promises is in there then.
            as_of_ms = watermark_of(checkpoint)
            rows = _table(spark, table, kept).cache()
            try:
                done = _publish(kind, rows, lambda: as_of_ms, out, source, on_step, page, "Reading what was kept")
                return replace(done, records=records)
            finally:
                rows.unpersist()

        def tick() -> None:
            nonlocal changed, published_at
            if on_tick is not None:
                on_tick()
            if every is not None and changed and time.monotonic() - published_at > PUBLISH_EVERY_S:
                changed = False
                on_publish(made())
                reading.at(records, None, "records")
                published_at = time.monotonic()

        reading.next()
        ingest(kept, table, checkpoint, name=kind.name, every=every, on_batch=finished, on_tick=tick)
        return made()


class _BatchRead:
    """`read_topic` between two positions."""

    streaming = False

    def __init__(self, spark: SparkSession, bootstrap: Bootstrap, start: Position, end: Position) -> None:
        self._spark, self._bootstrap = spark, bootstrap
        self._start, self._end = start, end
        self._cached: list[DataFrame] = []

    def __enter__(self) -> _BatchRead:
        return self

    def __exit__(self, *_: object) -> None:
        for frame in self._cached:
            frame.unpersist()

    def once(self, frame: DataFrame) -> DataFrame:
        self._cached.append(frame.cache())
        return frame

    def __call__(self, topics: str | Sequence[str] | re.Pattern[str], tag: str | None = None) -> DataFrame:
        return read_topic(self._spark, topics, bootstrap=self._bootstrap, start=self._start, end=self._end, tag=tag)


class _StreamRead:
    """`read_stream` from a position on."""

    streaming = True

    def __init__(
        self, spark: SparkSession, bootstrap: Bootstrap, start: Position, batch_records: int | None, lossy: bool
    ) -> None:
        self._spark, self._bootstrap = spark, bootstrap
        self._start, self._batch_records = start, batch_records
        self._options = {"failOnDataLoss": str(not lossy).lower()}

    def once(self, frame: DataFrame) -> DataFrame:
        return frame

    def __call__(self, topics: str | Sequence[str] | re.Pattern[str], tag: str | None = None) -> DataFrame:
        return read_stream(
            self._spark, topics, bootstrap=self._bootstrap, start=self._start, tag=tag,
            batch_records=self._batch_records, options=self._options,
        )  # fmt: skip


def _check_kept(admin: Admin, kind: Kind, folder: Path) -> None:
    """Raises PipelineError where what is kept in the folder is of something else."""
    ids = {topic: admin.topic_id(topic) for topic in kind.topics}
    wanted = {"cluster": admin.cluster_id(), "topics": ids, "rules": kind.said()}
    manifest = folder / "kept.json"
    if not manifest.exists():
        folder.mkdir(parents=True, exist_ok=True)
        LocalFiles().write(str(manifest), json.dumps(wanted, indent=1))
        return
    found = json.loads(manifest.read_text())
    for key, value in json.loads(json.dumps(wanted)).items():
        if found.get(key) != value:
            raise PipelineError(
                f"{folder} was kept with other {key if key != 'cluster' else 'clusters'}"
                f" ({json.dumps(found.get(key))}): give another --out, or remove it"
            )


def _table(spark: SparkSession, table: Path, kept: DataFrame) -> DataFrame:
    """What was kept so far; before the first batch there is no table."""
    if (table / "_spark_metadata").is_dir():
        return spark.read.schema(kept.schema).parquet(str(table))
    return spark.createDataFrame([], kept.schema)


def _publish(
    kind: Kind, kept: DataFrame, as_of: Callable[[], int | None], out: Path, source: str,
    on_step: OnStep, page: UnfinishedPage, reading: str,
) -> Published:  # fmt: skip
    """Make the report from what was kept, which is cached, in steps that are told of; `reading` names the first."""
    with kind.parts(kept, as_of) as parts:
        steps = Steps([reading, *(part.what for part in parts), _DRAWING], on_step, page)
        with _next(steps, kept.sparkSession):
            as_of()
            kept.count()  # It is in the cache then, and none of the parts waits for the topics.
        reports = _made(parts, steps, kept.sparkSession)
    facts = kind.facts({each.name: each for each in reports})

    def draw(on_report: OnReport) -> Published:
        return publish(out, kind.name, kind.title, reports, facts, source, on_report=on_report)

    return _drawn(steps, page, draw)


def _made(parts: Sequence[Part], steps: Steps, spark: SparkSession) -> list[Report]:
    """All reports, a step for each part."""
    reports: list[Report] = []
    for part in parts:
        with _next(steps, spark):
            reports += part.make()
    return reports


@contextmanager
def _next(steps: Steps, spark: SparkSession) -> Iterator[None]:
    """The next step, which Spark does in tasks."""
    steps.next()
    with tasks_told(spark, lambda done, of: steps.at(done, of, "tasks")):
        yield


def _drawn(steps: Steps, page: UnfinishedPage, draw: Callable[[OnReport], Published]) -> Published:
    """The last step."""
    steps.next()
    published = draw(lambda done, of: steps.at(done, of, "reports"))
    page.finished()
    return published


def _reading(kind: Kind) -> str:
    return f"Reading {one_line(', '.join(kind.topics), 60) or 'the topics'}"


def flight_report(
    spark: SparkSession, topic: str, out: Path, *, bootstrap: Bootstrap = None, on_step: OnStep = ignored
) -> Published:
    """The report that `make demo` draws, from the topics that it has filled: flights and four small tables beside them.

    Raises PipelineError.
    """
    name, title = "flights", "Flights and their delays"
    topics = {table: f"{topic}.{table}" for table in REFERENCE_SCHEMAS}
    reference = reference_tables(read_topic(spark, list(topics.values()), bootstrap=bootstrap), topics)
    flights = read_topic(spark, topic, bootstrap=bootstrap)
    enriched = enrich(typed_flights(flights), reference).cache()
    count = cache(enriched.count)
    try:
        with unfinished_page(out, name, title, f"topic {topic}") as page:
            parts = flight_parts(enriched, min_route_flights=lambda: fewest_on_a_route(count()))
            plan = [f"Reading {topic}", *(part.what for part in parts), _DRAWING]
            steps = Steps(plan, on_step, page)
            with _next(steps, spark):
                source = f"{count():,} flights of topic {topic}"
            reports = _made(parts, steps, spark)

            def draw(on_report: OnReport) -> Published:
                places = reference.airports.select("lon", "lat").collect()
                charts = flight_charts([(row["lon"], row["lat"]) for row in places])
                return publish(out, name, title, reports, flight_facts(reports), source, charts, on_report)

            return _drawn(steps, page, draw)
    finally:
        enriched.unpersist()
