"""Names that a version reserves for topics of the broker's own, and that clients may have used before."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from halfmoon.core.append import Appender
from halfmoon.core.catalog.catalog import Catalog
from halfmoon.schema.control import TopicRenamed

RENAMED = "renamed."
"""Before the name of a topic that had to make way."""


def make_way(names: Iterable[str], catalog: Catalog, appender: Appender, logger: logging.Logger) -> None:
    """Rename the topics of clients that have these names. Call it when the log is recovered. Raises BrokerError."""
    for name in names:
        topic = catalog.topic(name)
        if topic is None or topic.internal:
            continue
        new, more = RENAMED + name, 1
        while catalog.topic(new) is not None:
            new, more = f"{RENAMED}{more}.{name}", more + 1
        appender.append_control(TopicRenamed(topic.number, new))
        logger.warning("event=topic_renamed topic=%s name=%s reason=reserved_name", name, new)
