"""How late delayed messages came: from the headers that the broker leaves on what it has delivered.

    halfmoon.delayed             how it was asked for: DELAY=3, TIMER_DELAY_SEC=60, TIMER_DELAY_MS=1500, or a time
    halfmoon.original-timestamp  the record's own timestamp, by the clock of who sent it (ms)

*Late* is the timestamp of the delivery less the time that was asked for. A wait counts from the record's own timestamp
here, and from its arrival in the broker: so the way there is part of it, and so is how far the two clocks differ. What
comes before its time by that reckoning is *early*.
"""

from __future__ import annotations

import re
from itertools import chain

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from halfmoon.pipeline.errors import PipelineError
from halfmoon.pipeline.reports.parts import Part, made
from halfmoon.pipeline.reports.report import Report
from halfmoon.pipeline.reports.windows import collected, window_ms, window_start

LEVELS = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
"""RocketMQ's, and the broker's unless broker.yaml says otherwise (`plugins.delay.levels`)."""
_UNITS_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_LEVEL = re.compile(r"(\d+)(ms|s|m|h|d)")


def levels_ms(levels: str) -> list[int]:
    """`"1s 5s"` → [1000, 5000]. Raises PipelineError."""
    matches = [_LEVEL.fullmatch(word) for word in levels.split()]
    if not matches or None in matches:
        raise PipelineError(f"levels are durations such as '1s 5s 1m', not {levels!r}")
    return [int(match[1]) * _UNITS_MS[match[2]] for match in matches if match is not None]


def delayed_messages(messages: DataFrame, levels: str = LEVELS) -> DataFrame:
    """Of a topic's messages those that were delayed; works on streams.

    Columns: asked (`DELAY=3`, or the header's name alone where every message may ask for something else), wait_ms (of
    levels; else null), due_ms, delivered_ms, topic, partition, offset. One whose headers cannot be read is left out.
    """
    waits = F.create_map(*(F.lit(each) for each in chain(*enumerate(levels_ms(levels), 1))))
    said = F.split(F.col("properties")["halfmoon.delayed"], "=")
    name, number = F.get(said, 0), _number(F.get(said, 1))
    sent_ms = _number(F.col("properties")["halfmoon.original-timestamp"])
    wait_ms = (
        F.when(
            (name == "DELAY") & number.isNotNull(), waits[F.least(number, F.lit(len(levels_ms(levels)))).cast("int")]
        )
        .when(name == "TIMER_DELAY_SEC", number * 1000)
        .when(name == "TIMER_DELAY_MS", number)
    )
    due_ms = F.when(name == "TIMER_DELIVER_MS", number).otherwise(sent_ms + wait_ms)
    is_level = name == "DELAY"
    return messages.select(
        F.when(is_level, F.concat_ws("=", name, number.cast("string"))).otherwise(name).alias("asked"),
        F.when(is_level, wait_ms).cast("bigint").alias("wait_ms"),
        due_ms.cast("bigint").alias("due_ms"),
        F.unix_millis("timestamp").alias("delivered_ms"),
        "topic",
        "partition",
        "offset",
    ).where("due_ms IS NOT NULL")


def delay_reports(delayed: DataFrame) -> list[Report]:
    """Both reports at once: those of `delay_parts`."""
    return made(delay_parts(delayed))


def delay_parts(delayed: DataFrame) -> list[Part]:
    """From the frame of `delayed_messages`: percentiles of how late they were, by what was asked and over time."""
    late = delayed.withColumn("late_ms", F.col("delivered_ms") - F.col("due_ms"))
    return [
        Part("Lateness by delay asked for", lambda: [_by_level(late)]),
        Part("Lateness over time", lambda: [_over_time(late)]),
    ]


def _by_level(late: DataFrame) -> Report:
    by_level = late.groupBy("asked", "wait_ms").agg(
        F.count("*").alias("messages"),
        F.sum((F.col("late_ms") < 0).cast("bigint")).alias("early"),
        _percentile(0.5, "p50_ms"),
        _percentile(0.9, "p90_ms"),
        _percentile(0.99, "p99_ms"),
        F.max("late_ms").alias("max_ms"),
    )
    by_level = by_level.orderBy(F.col("wait_ms").asc_nulls_last(), "asked")
    by_level = by_level.select("asked", (F.col("wait_ms") / 1000).alias("wait_s"), *by_level.columns[2:])
    return collected("delay_by_level", "How late delayed messages came", by_level, 1)


def _over_time(late: DataFrame) -> Report:
    length = window_ms(late, "delivered_ms")
    over_time = (
        late.groupBy(window_start(F.col("delivered_ms"), length).alias("window_start"))
        .agg(F.count("*").alias("messages"), _percentile(0.5, "p50_ms"), _percentile(0.99, "p99_ms"))
        .orderBy("window_start")
    )
    return collected("delay_over_time", "How late they came over time", over_time, 1, ("window_start",))


def _percentile(share: float, name: str) -> Column:
    return F.percentile("late_ms", F.lit(share)).alias(name)


def _number(text: Column) -> Column:
    # Not a cast: in ANSI mode, the default from Spark 4, a header that is no number would end the query.
    return F.when(text.rlike(r"^-?[0-9]{1,15}$"), text).cast("bigint")
