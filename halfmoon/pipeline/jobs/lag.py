"""How far consumer groups have come: samples of their offsets, appended to a Parquet table.

Kafka's protocol knows what a group has committed now, and nothing of before. So whoever wants to see lag over time asks
again and again and keeps the answers. Spark's queries are shown as well where they write their progress as a group's
(group_progress.py).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

from pyspark.sql import SparkSession

from halfmoon.pipeline.admin import Admin, regular_expression
from halfmoon.pipeline.queries import interruptible_wait

SCHEMA = "at_ms BIGINT, group STRING, topic STRING, partition INT, committed BIGINT, end BIGINT, lag BIGINT"


class Sample(NamedTuple):
    """One partition of one group at a moment."""

    at_ms: int
    group: str
    topic: str
    partition: int
    committed: int
    end: int
    lag: int


def sample(admin: Admin, groups: str = ".*") -> list[Sample]:
    """What the groups whose names match a regular expression have committed, and where the topics end. Topics that are
    gone are left out. Raises PipelineError."""
    wanted = regular_expression(groups)
    committed = {group: admin.committed(group) for group in admin.groups() if wanted.fullmatch(group)}
    there = set(admin.topics())
    ends = {topic: admin.ends(topic) for topic in {t for topics in committed.values() for t in topics} & there}
    at_ms = time.time_ns() // 1_000_000
    return [
        Sample(at_ms, group, topic, partition, offset, ends[topic][partition], max(0, ends[topic][partition] - offset))
        for group, topics in sorted(committed.items())
        for topic, partitions in sorted(topics.items())
        for partition, offset in sorted(partitions.items())
        if partition in ends.get(topic, {})
    ]


def record_lag(
    spark: SparkSession,
    table: str,
    *,
    bootstrap: str | None = None,
    groups: str = ".*",
    every_s: float | None = None,
    on_sample: Callable[[list[Sample]], None] = lambda _: None,
    on_tick: Callable[[], None] = lambda: None,
) -> None:
    """Append a sample to the table; with `every_s`, one so often, until `on_tick` raises something.

    A sample is written as a whole or not at all, and one that is written twice by whoever tries again is two moments.
    Raises PipelineError where the broker does not answer.
    """
    admin = Admin(bootstrap)
    due = time.monotonic()
    while True:
        found = sample(admin, groups)
        if found:
            spark.createDataFrame(found, SCHEMA).coalesce(1).write.mode("append").parquet(table)
        on_sample(found)
        if every_s is None:
            return
        due = max(due + every_s, time.monotonic())
        interruptible_wait(due, on_tick)
