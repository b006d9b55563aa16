"""A stream into a Parquet table, exactly once: all that is there now, then stop (trigger `availableNow`).

Spark's file sink lists the files of finished batches in `_spark_metadata`, and readers go by that list; the checkpoint
holds the offsets. Killed at any moment, the next run repeats the unfinished batch under the same number, and files of
the broken attempt are never listed. So neither table nor checkpoint may be moved or deleted without the other.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import DataFrame
from pyspark.sql.streaming import StreamingQuery

from halfmoon.pipeline.errors import PipelineError

_POLL_S = 0.2


@dataclass(slots=True, frozen=True)
class Ingested:
    """What one run of the query did."""

    records: int
    batches: int


def ingest(
    stream: DataFrame, table: Path, checkpoint: Path, *, on_progress: Callable[[StreamingQuery], None] | None = None
) -> Ingested:
    """Append what `stream` has now to the Parquet table, and return when it is done.

    `on_progress` is called about five times a second while the query runs; what it raises stops the query. Raises
    PipelineError with the first line of Spark's reason if the query fails.
    """
    from pyspark.errors import StreamingQueryException

    query = (
        stream.writeStream.format("parquet")
        .option("path", str(table))
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    try:
        while not query.awaitTermination(_POLL_S):
            if on_progress is not None:
                on_progress(query)
    except StreamingQueryException as failed:
        raise PipelineError(f"the stream stopped: {_first_line(failed)}") from failed
    except Exception:
        query.stop()
        raise
    if on_progress is not None:
        on_progress(query)
    batches = batch_records(query)
    return Ingested(sum(batches.values()), len(batches))


def batch_records(query: StreamingQuery) -> dict[int, int]:
    """Records read by each finished batch that read any.

    Spark remembers the last 100 batches (spark.sql.streaming.numRecentProgressUpdates).
    """
    return {p["batchId"]: p["numInputRows"] for p in query.recentProgress if p["numInputRows"]}


def _first_line(failed: Exception) -> str:
    return str(failed).strip().splitlines()[0][:300]
