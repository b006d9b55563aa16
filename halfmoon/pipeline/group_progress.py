"""How far Spark queries have come, written down as consumer groups' offsets.

Spark keeps a query's offsets in its checkpoint and commits none, so no tool that shows a group's lag knows of it. Here
they are written to the broker after each batch, under a group's name: `halfmoon group describe`, Kafka's tools and
every lag exporter show the query like a consumer. Nothing is ever read from there: the checkpoint is what counts.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import StreamingQueryListener

from halfmoon.pipeline.admin import Admin, TopicOffsets
from halfmoon.pipeline.brokers import Bootstrap
from halfmoon.pipeline.errors import PipelineError
from halfmoon.pipeline.queries import batch_of

logger = logging.getLogger(__name__)


def group_writer(admin: Admin, group: str) -> Callable[[TopicOffsets], None]:
    """A function that writes offsets as the group's. A broker that refuses is logged, once until it takes them again:
    showing progress is no reason for a query to end.
    """
    refused = False

    def write(offsets: TopicOffsets) -> None:
        nonlocal refused
        if not offsets:
            return
        try:
            admin.commit(group, offsets)
        except PipelineError as error:
            if not refused:
                logger.warning("event=offsets_not_written group=%s reason=%s", group, error)
            refused = True
        else:
            refused = False

    return write


def commit_progress(
    spark: SparkSession, group: str, *, query: str | None = None, bootstrap: Bootstrap = None
) -> StreamingQueryListener:
    """From now on, write the progress of the session's streaming queries as the offsets of `group`.

    `query` names one query (`queryName`); without it, all of the session count. The listener is returned for
    `spark.streams.removeListener`. No consumer may be a member of the group: the broker refuses to write then.
    """
    listener = _GroupListener(group_writer(Admin(bootstrap), group), query)
    spark.streams.addListener(listener)
    return listener


class _GroupListener(StreamingQueryListener):
    def __init__(self, write: Callable[[TopicOffsets], None], query: str | None) -> None:
        self._write = write
        self._query = query

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802
        pass

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802
        if self._query is None or event.progress.name == self._query:
            self._write(batch_of(event.progress).ends)

    def onQueryIdle(self, event: Any) -> None:  # noqa: N802
        pass

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802
        pass
