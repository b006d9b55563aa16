"""What consumer groups have given up: by group, reason, topic, and over time, from the topics `dlq.<group>`."""

from __future__ import annotations

import re

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from halfmoon.pipeline.reports.parts import Part, made
from halfmoon.pipeline.reports.report import Report
from halfmoon.pipeline.reports.windows import collected, window_ms, window_start

TOPICS = r"dlq\..+"
"""A regular expression for the topics with dead letters."""
_ESCAPED = re.compile(rb"_x([0-9A-F]{2})_")


def group_of(topic: str) -> str:
    """The group whose dead letters are in `dlq.<group>`: what a topic's name cannot hold is written there as `_xHH_`, a
    byte of UTF-8 each (docs/retry.md)."""
    written = topic.removeprefix("dlq.").encode()
    return _ESCAPED.sub(lambda byte: bytes.fromhex(byte[1].decode()), written).decode(errors="replace")


def dead_letters(messages: DataFrame) -> DataFrame:
    """Of messages of such topics what the reports need; works on streams.

    Columns: dlq (the topic they lie in), reason, topic (where the record was first consumed; `?` where nobody said),
    times (how often it was handed back), at_ms (the record's timestamp), partition, offset.
    """
    properties = F.col("properties")
    return messages.select(
        F.col("topic").alias("dlq"),
        _or_unknown(properties["halfmoon.reason"]).alias("reason"),
        _or_unknown(properties["RETRY_TOPIC"]).alias("topic"),
        properties["RECONSUME_TIME"].alias("times"),
        F.unix_millis("timestamp").alias("at_ms"),
        "partition",
        "offset",
    )


def dead_letter_reports(letters: DataFrame) -> list[Report]:
    """All three reports at once: those of `dead_letter_parts`."""
    return made(dead_letter_parts(letters))


def dead_letter_parts(letters: DataFrame) -> list[Part]:
    """From the frame of `dead_letters`."""
    count = F.count("*").alias("letters")
    most = (F.desc("letters"), "dlq")

    def by_group() -> list[Report]:
        times = F.min("at_ms").alias("first_at"), F.max("at_ms").alias("last_at")
        found = letters.groupBy("dlq").agg(count, *times).orderBy(*most)
        return [_with_groups(collected("dlq_by_group", "Dead letters by group", found, 1, ("first_at", "last_at")))]

    def by_reason() -> list[Report]:
        found = letters.groupBy("dlq", "reason", "topic").agg(count).orderBy(*most, "reason", "topic")
        return [_with_groups(collected("dlq_by_reason", "Why records were given up", found, 3))]

    def over_time() -> list[Report]:
        start = window_start(F.col("at_ms"), window_ms(letters, "at_ms")).alias("window_start")
        found = letters.groupBy(start, "dlq").agg(count).orderBy("window_start", "dlq")
        return [_with_groups(collected("dlq_over_time", "Dead letters over time", found, 2, ("window_start",)))]

    return [
        Part("Dead letters by group", by_group),
        Part("Dead letters by reason", by_reason),
        Part("Dead letters over time", over_time),
    ]


def _with_groups(report: Report) -> Report:
    """The topic's name made the group's: on the driver, so that nothing of ours runs in executors."""
    at = report.columns.index("dlq")
    columns = tuple("group" if name == "dlq" else name for name in report.columns)
    rows = tuple((*row[:at], group_of(row[at]), *row[at + 1 :]) for row in report.rows)
    return Report(report.name, report.title, columns, rows, report.key_columns)


def _or_unknown(text: Column) -> Column:
    return F.coalesce(text, F.lit("?"))
