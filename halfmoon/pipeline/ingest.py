"""A stream into a Parquet table, exactly once.

Spark's file sink lists the files of finished batches in `_spark_metadata`, and readers go by that list; the checkpoint
holds the offsets. Killed at any moment, the next run repeats the unfinished batch under the same number, and files of
the broken attempt are never listed. So neither table nor checkpoint may be moved or deleted without the other.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from pyspark.sql import DataFrame

from halfmoon.pipeline.queries import OnBatch, Queries, Totals


def ingest(
    stream: DataFrame,
    table: str | Path,
    checkpoint: str | Path,
    *,
    name: str = "ingest",
    every: str | None = None,
    on_batch: OnBatch | None = None,
    on_tick: Callable[[], None] | None = None,
) -> Totals:
    """Append what `stream` has now to the Parquet table, and return when it is done; with `every` ("10 seconds"), go on
    until `on_tick`, which is called some times a second, raises something.

    Raises PipelineError with the first line of Spark's reason if the query fails.
    """
    with Queries(stream.sparkSession, on_batch) as queries:
        writer = stream.writeStream.format("parquet").option("path", str(table))
        queries.start(name, writer, str(checkpoint), every)
        return queries.run(on_tick)[name]
