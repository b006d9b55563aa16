"""What Spark raises, in one line.

There are three ways in which Spark speaks to Python: its own exceptions, py4j's where it runs in a JVM of ours, and
gRPC's where it is a Spark Connect server. The last two packages need not be installed, and what was not imported has
raised nothing: so they are looked for among the modules that are loaded, and only when something has been raised.
"""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from halfmoon.pipeline.errors import PipelineError

_LONGEST = 300
"""Characters of a reason: a query's plan can stand in one line."""

_ELSEWHERE = (("pyspark.errors", "PySparkException"), ("py4j.protocol", "Py4JError"), ("grpc", "RpcError"))


@contextmanager
def spark_errors() -> Iterator[None]:
    """Turn what Spark raises in the block into a PipelineError of one line, while it can still be asked for it."""
    try:
        yield
    except raised_by_spark() as failed:
        raise PipelineError(f"Spark failed: {reason(failed)}") from failed


def raised_by_spark() -> tuple[type[Exception], ...]:
    """The classes of what Spark can have raised by now. ConnectionError: the JVM has gone."""
    loaded = [getattr(sys.modules[module], name) for module, name in _ELSEWHERE if module in sys.modules]
    return (ConnectionError, *loaded)


def reason(failed: BaseException) -> str:
    """The line that says most, of at most 300 characters: where there is one, it begins with Spark's [ERROR_CLASS]."""
    if type(failed).__name__ == "RetriesExceeded" and failed.__cause__ is not None:
        failed = failed.__cause__  # The number of tries is exceeded: what was tried stands in the cause.
    # gRPC's text is a picture of its object, in which the server's words are the `details`.
    details = re.search(r'^\s*details = "(.*?)"?$', str(failed), re.MULTILINE)
    text = details[1] if details else str(failed)
    known = _known(str(failed))
    if known is not None:
        return known
    text = re.sub(r"^\[STREAM_FAILED\] .*? terminated with exception: ", "", text)
    # py4j's first line names the method that was called; the Java exception stands in the second.
    said = [line.strip(": ") for line in text.splitlines() if not line.startswith("An error occurred while")]
    return next(filter(None, said), type(failed).__name__)[:_LONGEST]


def _known(text: str) -> str | None:
    """What our own users run into, in our own words: Spark's sentence is the tenth line of a stack trace."""
    if "ata may have been lost" in text or "KAFKA_DATA_LOSS" in text:
        unread = re.search(r"records in offset (\[\d+, \d+\)) for topic partition (\S+)", text)
        unread_35 = re.search(r"Cannot fetch offset (\d+) \(.*?TopicPartition: (\S+?)\)", text)
        changed = re.search(r"(?:Partition )?(\S+?)'s offset was changed from (\d+) to (\d+)", text)
        gone = re.search(r"(\S+) (?:are|is) gone", text)
        what = (
            f"offsets {unread[1]} of {unread[2]}" if unread
            else f"offset {unread_35[1]} of {unread_35[2]}" if unread_35
            else f"{changed[1]}: the next offset was {changed[2]}, and there is nothing beyond {changed[3]}" if changed
            else gone[1] if gone else "which ones, Spark does not say"
        )  # fmt: skip
        return (
            f"records are gone that had not been read yet ({what}): retention was quicker, or the topic was made anew."
            " With failOnDataLoss=false (--allow-data-loss) it goes on without them"
        )
    if "long overflow" in text:
        return "a record has a timestamp that Spark cannot hold (nanoseconds?): read around it with start= and end="
    if "UnknownTopicOrPartitionException" in text:
        return "a topic, or a partition, that was being read is not there any more"
    return None


def keep_off_the_terminal() -> None:
    """Stop Spark 4.0 from printing an error's stack traces as JSON when it is made: whoever catches it has them."""
    try:
        from pyspark.logger import PySparkLogger
    except ImportError:
        return  # Spark 3.5 does no such thing.
    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        PySparkLogger.getLogger(name).setLevel(logging.CRITICAL + 1)
