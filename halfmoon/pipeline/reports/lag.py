"""How far consumer groups, and Spark's queries among them, are behind: now and over time."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from halfmoon.pipeline.reports.report import Report
from halfmoon.pipeline.reports.windows import collected


def lag_reports(samples: DataFrame, now_ms: int | None) -> list[Report]:
    """From the table of `jobs.lag.record_lag`; *now* is the sample of that moment, None one that found no group."""
    by_topic = samples.groupBy("at_ms", "group", "topic").agg(
        F.count("*").alias("partitions"),
        F.sum("committed").alias("committed"),
        F.sum("end").alias("end"),
        F.sum("lag").alias("lag"),
    )
    now = (
        by_topic.where(F.col("at_ms") == F.lit(now_ms).cast("bigint"))
        .drop("at_ms")
        .orderBy(F.desc("lag"), "group", "topic")
    )
    over_time = by_topic.select(F.col("at_ms").alias("at"), "group", "topic", "lag").orderBy("at", "group", "topic")
    return [
        collected("lag_now", "How far groups are behind", now, 2),
        collected("lag_over_time", "Lag over time", over_time, 3, ("at",)),
    ]
