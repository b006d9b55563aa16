"""Topic → DataFrame → topic, through Spark's built-in `format("kafka")` and nothing else."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

Offsets = str | Mapping[str, Mapping[int, int]]
"""`earliest`, `latest`, or {topic: {partition: offset}}."""

HEADER_TYPE = "array<struct<key:string,value:binary>>"

DEFAULTS = {
    "includeHeaders": "true",
    # Spark reads a bounded range from each partition; a fetch at its end that waits for more is time lost. Kafka's
    # default of 500 ms is most of what a read of many small partitions takes.
    "kafka.fetch.max.wait.ms": "50",
}


def read_topic(
    spark: SparkSession,
    bootstrap: str,
    topics: str | Sequence[str],
    *,
    start: Offsets = "earliest",
    end: Offsets = "latest",
    options: Mapping[str, str] | None = None,
) -> DataFrame:
    """What the topics hold now, or a range of it, with the columns of `message_columns`.

    `options` go to Spark's source as they are and win over what is set here.
    """
    reader = spark.read.format("kafka").options(**_options(bootstrap, topics, start, options))
    return message_columns(reader.option("endingOffsets", offsets_json(end)).load())


def read_stream(
    spark: SparkSession,
    bootstrap: str,
    topics: str | Sequence[str],
    *,
    start: Offsets = "earliest",
    batch_records: int | None = None,
    options: Mapping[str, str] | None = None,
) -> DataFrame:
    """The topics as a stream, with the columns of `message_columns`; at most `batch_records` in one micro-batch.

    `start` counts only for a query that has no checkpoint yet.
    """
    reader = spark.readStream.format("kafka").options(**_options(bootstrap, topics, start, options))
    if batch_records is not None:
        reader = reader.option("maxOffsetsPerTrigger", batch_records)
    return message_columns(reader.load())


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
    bootstrap: str,
    topic: str,
    *,
    tags: Column | None = None,
    keys: Column | None = None,
    properties: Mapping[str, Column] | None = None,
    options: Mapping[str, str] | None = None,
) -> None:
    """Write `frame`'s columns `key` and `value` (string or binary) to a topic, the rest as headers.

    Spark's sink is at least once: a task that is tried again writes its records again.
    """
    named = {"TAGS": tags, "KEYS": keys, **(properties or {})}
    headers = [
        F.struct(F.lit(name).alias("key"), column.cast("string").cast("binary").alias("value"))
        for name, column in named.items()
        if column is not None
    ]
    if headers:
        # A header whose value is null is left out: absent and empty are different things to a filter.
        present = F.filter(F.array(*headers), lambda header: header["value"].isNotNull())
        frame = frame.withColumn("headers", present.cast(HEADER_TYPE))
    columns = [name for name in ("key", "value", "headers") if name in frame.columns]
    writer = frame.select(*columns).write.format("kafka").option("kafka.bootstrap.servers", bootstrap)
    writer.option("topic", topic).options(**(options or {})).save()


def offsets_json(offsets: Offsets) -> str:
    """Spark's way to write offsets: a word, or JSON with partitions as strings."""
    if isinstance(offsets, str):
        return offsets
    return json.dumps({topic: {str(p): at for p, at in ends.items()} for topic, ends in offsets.items()})


def _options(
    bootstrap: str, topics: str | Sequence[str], start: Offsets, options: Mapping[str, str] | None
) -> dict[str, str]:
    names = topics if isinstance(topics, str) else ",".join(topics)
    place = {"kafka.bootstrap.servers": bootstrap, "subscribe": names, "startingOffsets": offsets_json(start)}
    return {**DEFAULTS, **place, **(options or {})}


def _last(headers: Column, name: str) -> Column:
    # get, not element_at: in ANSI mode, the default from Spark 4, that one fails on an empty array.
    return F.get(F.reverse(F.filter(headers, lambda header: header["key"] == name)), 0)["value"].cast("string")


def _properties(headers: Column) -> Column:
    # Spark refuses a map with a key twice, so repeated names are dropped first. Few headers: the square is cheap.
    def is_last(header: Column, index: Column) -> Column:
        later = F.slice(headers, index + 2, F.size(headers))
        return ~F.exists(later, lambda other: other["key"] == header["key"])

    entries = F.transform(
        F.filter(headers, is_last), lambda h: F.struct(h["key"].alias("key"), h["value"].cast("string").alias("value"))
    )
    return F.map_from_entries(entries)
