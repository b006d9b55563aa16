"""Which queues a broker has of a topic: RocketMQ's queue ids, and the partitions that they name.

A broker's queues are those partitions that lie in its shard, numbered in the order of their indexes, so a topic that
grows leaves them as they are. Of a topic that lies in one log as a whole a queue id is the partition's index. Every
place in the adapter that makes one of the other asks here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from halfmoon.core.catalog.catalog import Catalog
    from halfmoon.core.catalog.topics import Partition, Topic


class Queues:
    """Of one broker."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._known_at = -1
        """When the catalog had changed so often, this was so:"""
        self._of: dict[int, list[Partition]] = {}
        """Number of a topic that is spread → its partitions here."""
        self._ids: dict[Partition, int] = {}

    def of(self, topic: Topic) -> list[Partition]:
        """By queue id."""
        return self._here(topic) if topic.is_spread else topic.partitions

    def id_of(self, partition: Partition) -> int:
        """−1 where it is not here."""
        topic = partition.topic
        if not topic.is_spread:
            return partition.index
        self._here(topic)
        return self._ids.get(partition, -1)

    def _here(self, topic: Topic) -> list[Partition]:
        if self._known_at != self._catalog.changes:
            self._known_at = self._catalog.changes
            self._of.clear()
            self._ids.clear()
        found = self._of.get(topic.number)
        if found is None:
            found = self._of[topic.number] = topic.here()
            for queue_id, partition in enumerate(found):
                self._ids[partition] = queue_id
        return found
