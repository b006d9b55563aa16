"""Topic → DataFrame → topic, through Spark's built-in `format("kafka")` and nothing else."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming import StreamingQuery

from halfmoon.pipeline.admin import Admin
from halfmoon.pipeline.brokers import Bootstrap, brokers
from halfmoon.pipeline.errors import PipelineError
from halfmoon.pipeline.offsets import Position, end_options, offsets_json, start_options
from halfmoon.pipeline.times import milliseconds
from halfmoon.pipeline.values import ValueSchema, with_data
from halfmoon.pipeline.views import Filter, chosen, filled_view

HEADER_TYPE = "array<struct<key:string,value:binary>>"

DEFAULTS = {
    "includeHeaders": "true",
    # What a transaction has aborted was never said.
    "kafka.isolation.level": "read_committed",
    # Spark reads a bounded range from each partition; a fetch at its end that waits for more is time lost. Kafka's
    # default of 500 ms is most of what a read of many small partitions takes.
    "kafka.fetch.max.wait.ms": "50",
    # How many of the records that it has already fetched Spark takes at once: with Kafka's default of 500, asking is
    # two fifths of the time that a read of 2 million small records takes.
    "kafka.max.poll.records": "5000",
}

Topics = str | Sequence[str] | re.Pattern[str]
"""One topic, several, or all whose names match a pattern as a whole; a stream gets later ones, too."""


def read_topic(
    spark: SparkSession,
    topics: Topics,
    *,
    bootstrap: Bootstrap = None,
    start: Position = "earliest",
    end: Position = "latest",
    tag: str | None = None,
    sql: str | None = None,
    view: str | None = None,
    schema: ValueSchema | None = None,
    options: Mapping[str, str] | None = None,
) -> DataFrame:
    """What the topics hold now, or a range of it, with the columns of `message_columns`.

    `start` and `end` (exclusive) are of the kinds that offsets.py lists. `tag` or `sql` has the broker filter: what is
    read is a view of the topic (views.py), so the columns `topic`, `partition` and `offset` are the view's; `view` is
    its name if one has to be made. With `schema` there is one more column, `data`: the value, parsed. `options` go to
    Spark's source as they are and win over what is set here. `bootstrap` is HOST:PORT or a `Brokers` (brokers.py).

    Raises PipelineError where the broker does not answer, a topic does not exist, or arguments contradict each other.
    """
    if start == "latest":
        raise PipelineError("a read that ends now cannot begin at 'latest'; a stream can")
    admin = Admin(bootstrap)
    wanted = chosen(tag, sql)
    if wanted is None:
        names = topic_names(admin, topics)
        ending = end_options(end, names, admin)
    else:
        upto = _pushed_down(admin, topics, wanted, view, start, end)
        names = list(upto)
        ending = {"endingOffsets": offsets_json(upto)} if end == "latest" else end_options(end, names, admin)
    if not names:
        return _with_data(_no_messages(spark), schema)
    place = _place(admin, names) | start_options(start, names, admin) | ending
    reader = spark.read.format("kafka").options(**(DEFAULTS | place | dict(options or {})))
    return _with_data(message_columns(reader.load()), schema)


def read_stream(
    spark: SparkSession,
    topics: Topics,
    *,
    bootstrap: Bootstrap = None,
    start: Position = "earliest",
    tag: str | None = None,
    sql: str | None = None,
    view: str | None = None,
    schema: ValueSchema | None = None,
    batch_records: int | None = None,
    options: Mapping[str, str] | None = None,
) -> DataFrame:
    """The topics as a stream, with the columns of `message_columns`; at most `batch_records` in one micro-batch.

    `start` counts only for a query that has no checkpoint yet. All else as in `read_topic`. A view that had to be made
    is waited for, so that a query with the trigger `availableNow` gets all there is.
    """
    admin = Admin(bootstrap)
    wanted = chosen(tag, sql)
    if wanted is None:
        names = topic_names(admin, topics)
    else:
        names = list(_pushed_down(admin, topics, wanted, view, start, "latest"))
    place = _place(admin, names) | start_options(start, names, admin)
    if isinstance(topics, re.Pattern) and wanted is None:
        del place["subscribe"]
        place["subscribePattern"] = _for_java(topics)
    if batch_records is not None:
        place["maxOffsetsPerTrigger"] = str(batch_records)
    reader = spark.readStream.format("kafka").options(**(DEFAULTS | place | dict(options or {})))
    return _with_data(message_columns(reader.load()), schema)


def message_columns(raw: DataFrame) -> DataFrame:
    """key, value (binary) · tags, keys (string: the headers TAGS and KEYS) · properties (map of all headers, text) ·
    topic, partition, offset, timestamp · headers (as they came: in order, repeated names kept, bytes).

    Where a header name is repeated, the last one counts, as in Kafka's `Headers.lastHeader`. Columns nobody selects
    cost nothing: Spark prunes them.
    """
    headers = F.coalesce(F.col("headers"), F.array().cast(HEADER_TYPE))
    return raw.select(
        "key",
        "value",
        _last(headers, "TAGS").alias("tags"),
        _last(headers, "KEYS").alias("keys"),
        _properties(headers).alias("properties"),
        "topic",
        "partition",
        "offset",
        "timestamp",
        headers.alias("headers"),
    )


def write_topic(
    frame: DataFrame,
    topic: str,
    *,
    bootstrap: Bootstrap = None,
    tags: Column | None = None,
    keys: Column | None = None,
    properties: Mapping[str, Column] | None = None,
    delay_level: Column | int | None = None,
    delay_ms: Column | int | None = None,
    deliver_at: Column | datetime | None = None,
    checkpoint: str | Path | None = None,
    every: str | None = None,
    options: Mapping[str, str] | None = None,
) -> StreamingQuery | None:
    """Write a frame's columns `key` and `value` (string or binary) to a topic.

    `tags`, `keys` and `properties` become headers, as text, beside those of a column `headers`; one that is null is
    left out. One of `delay_level` (1 to 18), `delay_ms` and `deliver_at` has the broker hold a record back until then
    (docs/delays.md). A column `partition` (int) says which one; without it, the key does. `options` go to Spark's sink.

    A streaming frame needs a `checkpoint`. Its query is started and returned: it writes what there is now, and ends;
    or, with `every` ("10 seconds"), it goes on.

    Spark's sink is at least once: a task or a batch that is tried again writes its records again. Raises PipelineError
    for a frame without a column `value`, and for two kinds of delay.
    """
    rows = _records(frame, tags, keys, properties, _delay(delay_level, delay_ms, deliver_at))
    place = brokers(bootstrap).spark() | {"topic": topic, **(options or {})}
    if not frame.isStreaming:
        rows.write.format("kafka").options(**place).save()
        return None
    if checkpoint is None:
        raise PipelineError("a stream that is written to a topic needs a checkpoint, a directory of its own")
    writer = rows.writeStream.format("kafka").options(**place, checkpointLocation=str(checkpoint))
    return (writer.trigger(availableNow=True) if every is None else writer.trigger(processingTime=every)).start()


# -- reading -----------------------------------------------------------------------------------------------------------


def topic_names(admin: Admin, topics: Topics) -> list[str]:
    """Their names; PipelineError for one that is not there, of which Spark would say so after seconds and in Java."""
    if isinstance(topics, re.Pattern):
        return admin.topics(topics)
    names = [topics] if isinstance(topics, str) else list(topics)
    if not names:
        raise PipelineError("no topic to read was named")
    for name in names:
        admin.partitions(name)
    return names


def _pushed_down(
    admin: Admin, topics: Topics, wanted: Filter, view: str | None, start: Position, end: Position
) -> dict[str, dict[int, int]]:
    """The views to read instead, each with the offsets up to which it has all that its topic holds now."""
    names = topic_names(admin, topics)
    if view is not None and len(names) > 1:
        raise PipelineError("view= names one view, so read one topic with it")
    for position in (start, end):
        if not isinstance(position, str | datetime):
            raise PipelineError(
                "a view has offsets of its own: with tag= and sql=, start and end are 'earliest', 'latest' or times"
            )
    return dict(filled_view(admin, name, wanted, view) for name in names)


def _place(admin: Admin, names: Sequence[str]) -> dict[str, str]:
    return admin.brokers.spark() | {"subscribe": ",".join(names)}


def _for_java(pattern: re.Pattern[str]) -> str:
    """The pattern as Spark's source takes it. Raises PipelineError for flags that have no meaning there."""
    if pattern.flags & ~(re.IGNORECASE | re.UNICODE):
        raise PipelineError("a pattern of topics has no flags but re.IGNORECASE")
    return f"{'(?i)' if pattern.flags & re.IGNORECASE else ''}^(?:{pattern.pattern})$"


def _no_messages(spark: SparkSession) -> DataFrame:
    """What Spark's source would give of no topic at all, which it refuses."""
    columns = "key BINARY, value BINARY, topic STRING, partition INT, offset BIGINT, timestamp TIMESTAMP"
    return message_columns(spark.createDataFrame([], f"{columns}, headers {HEADER_TYPE.upper()}"))


def _with_data(messages: DataFrame, schema: ValueSchema | None) -> DataFrame:
    return messages if schema is None else with_data(messages, schema)


def _last(headers: Column, name: str) -> Column:
    # get, not element_at: in ANSI mode, the default from Spark 4, that one fails on an empty array.
    return F.get(F.reverse(F.filter(headers, lambda header: header["key"] == name)), 0)["value"].cast("string")


def _properties(headers: Column) -> Column:
    # Spark refuses a map with a key twice, so repeated names are dropped first, where there are any: Spark does not
    # compile functions of elements, and they would double the time of a read. Few headers: the square is cheap.
    def is_last(header: Column, index: Column) -> Column:
        later = F.slice(headers, index + 2, F.size(headers))
        return ~F.exists(later, lambda other: other["key"] == header["key"])

    names_differ = F.size(F.array_distinct(headers["key"])) == F.size(headers)
    last_ones = F.when(names_differ, headers).otherwise(F.filter(headers, is_last))
    return F.map_from_entries(last_ones).cast("map<string, string>")


# -- writing -----------------------------------------------------------------------------------------------------------


def _records(
    frame: DataFrame,
    tags: Column | None,
    keys: Column | None,
    properties: Mapping[str, Column] | None,
    delay: Mapping[str, Column],
) -> DataFrame:
    """What Spark's sink takes: key, value, headers, partition, as far as there are any."""
    if "value" not in frame.columns:
        raise PipelineError("a frame that is written to a topic needs a column 'value', such as to_json(struct(*))")
    named = {"TAGS": tags, "KEYS": keys, **(properties or {}), **delay}
    added = [
        F.struct(F.lit(name).alias("key"), column.cast("string").cast("binary").alias("value"))
        for name, column in named.items()
        if column is not None
    ]
    if added:
        # A header whose value is null is left out: absent and empty are different things to a filter.
        headers = F.filter(F.array(*added), lambda header: header["value"].isNotNull()).cast(HEADER_TYPE)
        if "headers" in frame.columns:
            headers = F.concat(F.coalesce(F.col("headers"), F.array().cast(HEADER_TYPE)), headers)
        frame = frame.withColumn("headers", headers)
    return frame.select(*(name for name in ("key", "value", "headers", "partition") if name in frame.columns))


def _delay(
    level: Column | int | None, wait_ms: Column | int | None, deliver_at: Column | datetime | None
) -> dict[str, Column]:
    """The header that asks for it, if any. Raises PipelineError for several."""
    asked: list[tuple[str, Callable[[], Column]]] = []
    if level is not None:
        asked.append(("DELAY", lambda: _column(level)))
    if wait_ms is not None:
        asked.append(("TIMER_DELAY_MS", lambda: _column(wait_ms)))
    if deliver_at is not None:
        at = F.lit(milliseconds(deliver_at)) if isinstance(deliver_at, datetime) else F.unix_millis(deliver_at)
        asked.append(("TIMER_DELIVER_MS", lambda: at))
    if len(asked) > 1:
        raise PipelineError("give one of delay_level=, delay_ms= and deliver_at=")
    return {name: column() for name, column in asked}


def _column(given: Column | int) -> Column:
    return F.lit(given) if isinstance(given, int) else given
