"""PySpark over a broker's topics: a thin, readable layer on Spark's built-in `format("kafka")`.

Nothing of this package runs in Spark's executors except what plain PySpark puts there, so it works on any cluster.
It needs the extra `halfmoon[spark]`; importing this package alone does not import pyspark, so that a missing extra can
be said in a sentence.

    session.py      a SparkSession with the right connector      topics.py     topic → DataFrame → topic
    ingest.py       stream → Parquet table, exactly once         checkpoint.py how far a query has come
    checksum.py     one number for a set of records, in Python   audit.py      the same number in Spark
    progress.py     a running query on the terminal              report.py     small results: CSV, Markdown, Parquet
    flights.py, flight_reports.py, charts.py                     the job that `python -m halfmoon.demo` runs
"""

from __future__ import annotations

from halfmoon.pipeline.errors import PipelineError
from halfmoon.pipeline.session import connector_coordinates, session, stop

__all__ = ["PipelineError", "connector_coordinates", "session", "stop"]
