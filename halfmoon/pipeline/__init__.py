"""PySpark over a broker's topics: a thin, readable layer on Spark's built-in `format("kafka")`.

Nothing of this package runs in Spark's executors except what plain PySpark puts there (and `datasource.py`, which says
so), so it works on any cluster. It needs the extra `halfmoon[spark]`; importing this package alone does not import
pyspark, so that a missing extra can be said in a sentence.

    session.py      a SparkSession with the right connector, wherever Spark runs: jvm.py, java.py, connect.py
    brokers.py      where the broker is, and how to log in there
    topics.py       topic → DataFrame → topic: offsets.py (from where to where), values.py (JSON, Avro),
                    views.py (filters pushed down to the broker), admin.py (what the broker itself is asked)
    queries.py      streaming queries and their batches; progress.py (the same on the terminal)
    steps.py        how far long work is, for whoever listens; tasks.py (Spark's part of it)
    checkpoint.py   how far a query has come; group_progress.py (the same as a consumer group's offsets)
    ingest.py       stream → Parquet table, exactly once; sending.py (records → topic, from the driver)
    checksum.py     one number for a set of records, in Python; audit.py (the same number in Spark)
    jobs/           archive, replay, reports; reports/  what the reports say, and how they look
    orders.py       a shop that does not exist
    datasource.py   format("halfmoon")
    failures.py     what Spark raises, in one line; files.py (directories that Spark has no word for), times.py
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from halfmoon.pipeline.brokers import Brokers
from halfmoon.pipeline.errors import PipelineError
from halfmoon.pipeline.session import connector_coordinates, session, stop

if TYPE_CHECKING:
    from halfmoon.pipeline.group_progress import commit_progress
    from halfmoon.pipeline.jobs.archive import archive, read_archive
    from halfmoon.pipeline.jobs.replay import replay
    from halfmoon.pipeline.offsets import GroupOffsets
    from halfmoon.pipeline.topics import read_stream, read_topic, write_topic
    from halfmoon.pipeline.values import Avro

__all__ = [
    "Avro",
    "Brokers",
    "GroupOffsets",
    "PipelineError",
    "archive",
    "commit_progress",
    "connector_coordinates",
    "read_archive",
    "read_stream",
    "read_topic",
    "replay",
    "session",
    "stop",
    "write_topic",
]

_NEED_SPARK = {
    "Avro": "values",
    "GroupOffsets": "offsets",
    "archive": "jobs.archive",
    "commit_progress": "group_progress",
    "read_archive": "jobs.archive",
    "read_stream": "topics",
    "read_topic": "topics",
    "replay": "jobs.replay",
    "write_topic": "topics",
}
"""Imported when they are asked for, since their modules import pyspark."""


def __getattr__(name: str) -> Any:
    if name not in _NEED_SPARK:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_NEED_SPARK[name]}"), name)
