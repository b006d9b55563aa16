"""Topics → Parquet by topic and day, exactly once, and back into a DataFrame.

One streaming query for each topic, so that a topic that was deleted does not stop the others, and one that is added
later begins at its beginning. What lies where, and why nothing is there twice: archive_files.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from halfmoon.pipeline.admin import Admin, TopicOffsets
from halfmoon.pipeline.brokers import Bootstrap
from halfmoon.pipeline.errors import PipelineError
from halfmoon.pipeline.failures import spark_errors
from halfmoon.pipeline.files import Files, files_at
from halfmoon.pipeline.group_progress import group_writer
from halfmoon.pipeline.jobs.archive_files import (
    MESSAGE_COLUMNS,
    PLACE_COLUMNS,
    BatchFolder,
    Manifest,
    checkpoint_folder,
    days,
    folders,
    last_batch,
    live,
    read_manifest,
    topic_folder,
    topics,
    write_manifest,
)
from halfmoon.pipeline.jobs.compaction import compact
from halfmoon.pipeline.offsets import Position
from halfmoon.pipeline.queries import Batch, OnBatch, Queries, Totals
from halfmoon.pipeline.times import FIRST_MS, LAST_MS, milliseconds, utc
from halfmoon.pipeline.topics import Topics, read_stream, topic_names

BATCH_RECORDS = 1_000_000
COMPACT_EVERY = 16
"""Batches of a topic; between them a stream that goes on has small files looked for."""
DAY_MS = 86_400_000


def archive(
    spark: SparkSession,
    source: Topics,
    path: str,
    *,
    bootstrap: Bootstrap = None,
    start: Position = "earliest",
    schemas: Mapping[str, str] | None = None,
    every: str | None = None,
    batch_records: int = BATCH_RECORDS,
    group: str | None = None,
    allow_data_loss: bool = False,
    compacting: bool = True,
    on_batch: OnBatch | None = None,
    on_tick: Callable[[], None] | None = None,
) -> dict[str, Totals]:
    """Append what is new in the topics to the archive at `path`, and return what was done, by topic.

    May be killed at any moment and run again; one process at a time (on a local disk, a second one is refused). `start`
    counts for topics that are not in it yet. `schemas` names, for topics with JSON values, what is in them (DDL): it
    becomes a column `data`, and is remembered. With `every` ("1 minute") it goes on until `on_tick`, called some times
    a second, raises something. `group` is where the progress is shown as a consumer group's offsets. `allow_data_loss`
    goes on where the topics have lost records that had not been read yet; otherwise that ends the topic's archive with
    an error, as in Spark.

    Raises PipelineError: an archive of another cluster or with other schemas, a topic that does not exist, a query
    that failed (the other topics are finished first).
    """
    admin, files = Admin(bootstrap), files_at(spark, path)
    path = path.rstrip("/")
    names = list(dict.fromkeys(topic_names(admin, source)))
    columns = _columns(spark, names, schemas or {})
    show = group_writer(admin, group) if group else _nowhere
    with files.locked(f"{path}/_lock"), Queries(spark) as queries:
        manifest = _manifest(admin, files, path, names, columns)

        def merge(name: str) -> None:
            if compacting:
                compact(spark, path, name, on_tick=on_tick)

        def finished(batch: Batch) -> None:
            show(batch.ends)
            if on_batch is not None:
                on_batch(batch)
            if every is not None and batch.number % COMPACT_EVERY == COMPACT_EVERY - 1:
                merge(batch.query)

        queries.on_batch = finished
        for name in names:
            stream = read_stream(
                spark, name, bootstrap=admin.brokers, start=start, batch_records=batch_records,
                options={"failOnDataLoss": str(not allow_data_loss).lower()},
            )  # fmt: skip
            rows = _archived(stream, manifest.schemas.get(name))
            writer = rows.writeStream.foreachBatch(_batch_writer(topic_folder(path, name)))
            _sweep(files, topic_folder(path, name))
            queries.start(name, writer, checkpoint_folder(path, name), every)
        done = queries.run(on_tick)
        for name in names:
            merge(name)
    return done


def read_archive(
    spark: SparkSession,
    path: str,
    source: str | Sequence[str] | None = None,
    *,
    start: datetime | None = None,
    end: datetime | None = None,
) -> DataFrame:
    """What an archive holds of the topics (all, by default), of timestamps from `start` up to `end` (exclusive; without
    a zone: UTC). Each record is there once, also while the archive is being written and compacted; but a DataFrame that
    was made before a compaction may find its files gone, and is to be made anew.

    Columns: key, value (binary), tags, keys (string), headers (as they came), topic, partition, offset, timestamp, date
    (UTC), batch; with one topic that has a schema, `data` as well. Raises PipelineError if there is no archive.
    """
    files = files_at(spark, path)
    path = path.rstrip("/")
    manifest = read_manifest(files, path)
    if manifest is None:
        raise PipelineError(f"there is no archive in {path}")
    there = topics(files, path)
    names = there if source is None else [source] if isinstance(source, str) else list(source)
    unknown = [name for name in names if name not in there]
    if unknown:
        raise PipelineError(f"the archive in {path} has no topic {unknown[0]!r} (it has: {', '.join(there) or 'none'})")
    paths = [folder.path for name in names for folder in _live(files, path, name, start, end)]
    schemas = {manifest.schemas.get(name) for name in names}
    schema = schemas.pop() if len(schemas) == 1 else None
    columns = MESSAGE_COLUMNS + (f", data STRUCT<{schema}>" if schema else "")
    if not paths:
        return spark.createDataFrame([], f"{columns}, {PLACE_COLUMNS}")
    read = spark.read.schema(f"{columns}, {PLACE_COLUMNS}").option("basePath", path).parquet(*paths)
    for bound, is_within in ((start, F.col("timestamp").__ge__), (end, F.col("timestamp").__lt__)):
        if bound is not None:
            read = read.where(is_within(F.timestamp_millis(F.lit(milliseconds(bound)))))
    return read


def _live(files: Files, path: str, topic: str, start: datetime | None, end: datetime | None) -> list[BatchFolder]:
    first, after = (bound and utc(milliseconds(bound)).date() for bound in (start, end))
    last = last_batch(files, path, topic)
    return [
        folder
        for day in days(files, path, topic)
        if (first is None or day >= first) and (after is None or day <= after)
        for folder in live(folders(files, path, topic, day), last)
    ]


def _archived(messages: DataFrame, schema: str | None) -> DataFrame:
    # Of the timestamp in UTC, whatever the session's time zone: a batch must have the same days when it is repeated.
    # What is beyond the year 9999 (some producers write microseconds) has a day that others can read.
    at_ms = F.greatest(F.lit(FIRST_MS), F.least(F.unix_millis("timestamp"), F.lit(LAST_MS)))
    day = F.date_from_unix_date(F.floor(at_ms / DAY_MS).cast("int"))
    columns: list[Column | str] = ["key", "value", "tags", "keys", "headers", "partition", "offset", "timestamp"]
    if schema is not None:
        columns.append(F.from_json(F.col("value").cast("string"), schema).alias("data"))
    return messages.select(*columns, day.alias("date"))


def _batch_writer(folder: str) -> Callable[[DataFrame, int], None]:
    def write(rows: DataFrame, number: int) -> None:
        # With Spark Connect this runs in the server's Python, which has pyspark and nothing of ours.
        from pyspark.sql.functions import lit

        # Dynamic: only the directories of this batch are replaced, each as a whole.
        writer = rows.withColumn("batch", lit(f"{number:09d}")).write.mode("overwrite")
        writer = writer.option("partitionOverwriteMode", "dynamic").option("compression", "zstd")
        writer.partitionBy("date", "batch").parquet(folder)

    return write


def _manifest(admin: Admin, files: Files, path: str, names: Sequence[str], schemas: dict[str, str]) -> Manifest:
    """That of the archive, with what is new; PipelineError where it is not the archive of this."""
    cluster, there = admin.cluster_id(), topics(files, path)
    found = read_manifest(files, path)
    if found is None:
        found = Manifest(cluster)
        if there:
            raise PipelineError(f"{path} holds something, but no _archive.json: is it an archive?")
    elif found.cluster != cluster:
        raise PipelineError(f"{path} is the archive of cluster {found.cluster}, and {admin.bootstrap} is {cluster}")
    ids = {name: admin.topic_id(name) for name in names}
    for name in names:
        if found.ids.get(name, ids[name]) != ids[name]:
            # Its offsets begin anew: Spark would take those up to the old ones for read, and say nothing.
            raise PipelineError(f"{name} is not the topic that is archived in {path}: it was deleted and made anew")
        begun = files.entries(f"{checkpoint_folder(path, name)}/offsets")
        if not begun and any(folders(files, path, name, day) for day in days(files, path, name)):
            # Batches would be counted from 0 again, and replace those that are there.
            raise PipelineError(f"the archive of {name} in {path} has lost its checkpoint")
    for topic, schema in schemas.items():
        if found.schemas.get(topic, schema) != schema or (topic not in found.schemas and topic in there):
            raise PipelineError(
                f"{topic} is archived with schema {found.schemas.get(topic)!r}: it cannot become {schema!r}"
            )
    manifest = Manifest(cluster, found.ids | ids, found.schemas | schemas)
    write_manifest(files, path, manifest)
    return manifest


def _columns(spark: SparkSession, names: Sequence[str], schemas: Mapping[str, str]) -> dict[str, str]:
    """Schemas as they are kept: by topic the columns, in one way to write them. Raises PipelineError."""
    found = {}
    for topic, schema in schemas.items():
        if topic not in names:
            raise PipelineError(f"there is a schema for {topic!r}, which is not among the topics")
        with spark_errors():
            fields = spark.createDataFrame([], schema).schema.fields
        found[topic] = ", ".join(f"{each.name} {each.dataType.simpleString()}" for each in fields)
    return found


def _sweep(files: Files, folder: str) -> None:
    """Remove what a killed run has left unfinished."""
    for entry in files.entries(folder):
        if entry.name.startswith(".spark-staging") or entry.name == "_temporary":
            files.remove(f"{folder}/{entry.name}")


def _nowhere(_: TopicOffsets) -> None:
    pass
