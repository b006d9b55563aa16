"""Kafka's internal topics are made when a client asks for one first (`service` says what is written there)."""

from __future__ import annotations

from collections.abc import Collection

from halfmoon.core.catalog.catalog import Catalog
from halfmoon.core.catalog.topics import Topic
from halfmoon.core.topic_administration import TopicAdministration
from halfmoon.services.internal_topics import records

CONFIGS = {"cleanup.policy": "compact", "compression.type": "producer", "segment.bytes": str(100 << 20)}
"""As Kafka makes them."""


class OfferedTopics:
    def __init__(
        self,
        catalog: Catalog,
        topics: TopicAdministration,
        offered: Collection[str],
        partitions: int = records.PARTITIONS,
    ) -> None:
        """`offered`: those whose services are on."""
        self._catalog = catalog
        self._topics = topics
        self._offered = offered
        self._partitions = partitions

    def offer(self, name: str) -> tuple[Topic, int] | None:
        """The internal topic of that name, made now, and the log position to wait for; None where it is there already,
        or the name is another. Raises BrokerError."""
        if name not in self._offered or self._catalog.topic(name) is not None:
            return None
        return self._topics.create_topic(name, self._partitions, CONFIGS, internal=True)
