"""How far consumer groups, and Spark's queries among them, are behind: now and over time."""

from __future__ import annotations

from collections import defaultdict

import pyarrow
from pyarrow import compute

from halfmoon.pipeline.reports.report import Report
from halfmoon.pipeline.times import utc

MOST_MOMENTS = 1_000
"""Of more, the table over time tells stretches of the same length, with the greatest lag of each."""

_NO_GROUP = "No group that was asked for has committed an offset."


def lag_reports(samples: pyarrow.Table, now_ms: int | None) -> list[Report]:
    """From `jobs.lag.Samples.rows`; *now* is the sample of that moment, None one that found no group."""
    sums = [("partition", "count"), ("committed", "sum"), ("end", "sum"), ("lag", "sum")]
    by_topic = samples.group_by(["at_ms", "group", "topic"]).aggregate(sums)
    latest = by_topic.filter(compute.equal(by_topic["at_ms"], now_ms)).to_pylist() if now_ms is not None else []
    now = [
        (row["group"], row["topic"], *(row[f"{column}_{how}"] for column, how in sums))
        for row in sorted(latest, key=lambda row: (-row["lag_sum"], row["group"], row["topic"]))
    ]
    columns = ("group", "topic", "partitions", "committed", "end", "lag")
    return [
        Report("lag_now", "How far groups are behind", columns, tuple(now), 2, _NO_GROUP),
        Report("lag_over_time", "Lag over time", ("at", "group", "topic", "lag"), _over_time(by_topic), 3, _NO_GROUP),
    ]


def _over_time(by_topic: pyarrow.Table) -> tuple[tuple[object, ...], ...]:
    moments = sorted(compute.unique(by_topic["at_ms"]).to_pylist())
    stretch_ms = (moments[-1] - moments[0]) // MOST_MOMENTS + 1 if len(moments) > MOST_MOMENTS else 1
    # By stretch and line, the greatest lag and when it was.
    peaks: dict[tuple[int, str, str], tuple[int, int]] = defaultdict(lambda: (-1, 0))
    for at_ms, group, topic, lag in zip(
        *(by_topic[name].to_pylist() for name in ("at_ms", "group", "topic", "lag_sum")), strict=True
    ):
        place = (at_ms // stretch_ms, group, topic)
        peaks[place] = max(peaks[place], (lag, at_ms))
    rows = sorted((at_ms, group, topic, lag) for (_, group, topic), (lag, at_ms) in peaks.items())
    return tuple((utc(at_ms), *rest) for at_ms, *rest in rows)
