"""Topics that shards need: made, or grown, in the shared catalog, a moment after they were asked for."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING

from halfmoon.cluster.placement import is_aligned
from halfmoon.cluster.store import CatalogUnavailableError
from halfmoon.errors import BrokerError
from halfmoon.schema.group_topics import retrying_group

if TYPE_CHECKING:
    from halfmoon.core.catalog.topics import Topic
    from halfmoon.core.topic_administration import TopicAdministration
    from halfmoon.server.workers.catalog import SharedCatalogDriver

logger = logging.getLogger("halfmoon.server")


class WantedTopics:
    """As core's SharedTopics, of one process."""

    def __init__(self, shards: int) -> None:
        self._shards = shards
        self._made: dict[str, tuple[int, Mapping[str, str]]] = {}
        self._grown: set[str] = set()
        self._driver: SharedCatalogDriver | None = None
        self._topics: TopicAdministration | None = None
        self._making: asyncio.Task[None] | None = None

    def bind(self, driver: SharedCatalogDriver, topics: TopicAdministration) -> None:
        """From now on what was wanted is made. `topics`: the administration of the shared catalog."""
        self._driver, self._topics = driver, topics
        self._begin()

    def partitions_of(self, name: str, partitions: int) -> int:
        """How many a topic gets of which a shard wants so many (−1: as is best)."""
        if is_aligned(name):
            return max(partitions, self._shards)
        return 1 if partitions == -1 and retrying_group(name) is not None else partitions

    def make(self, name: str, partitions: int, configs: Mapping[str, str]) -> None:
        self._made.setdefault(name, (self.partitions_of(name, partitions), configs))
        self._begin()

    def grow(self, topic: Topic) -> None:
        self._grown.add(topic.name)
        self._begin()

    def _begin(self) -> None:
        if self._driver is not None and self._making is None and (self._made or self._grown):
            self._making = asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> None:
        assert self._driver is not None
        try:
            while self._made or self._grown:
                await self._driver.change(self._change)
        except CatalogUnavailableError as error:  # they are wanted again
            logger.warning("event=topics_not_made error=%s", error)
        finally:
            self._making = None

    def _change(self) -> None:
        topics = self._topics
        assert topics is not None
        made, self._made = self._made, {}
        grown, self._grown = self._grown, set()
        for name, (partitions, configs) in made.items():
            if topics.find(name) is None:
                _try(name, partial(topics.create_topic, name, partitions, configs))
        for name in grown:
            topic = topics.find(name)
            if topic is not None and len(topic.partitions) < self._shards:
                _try(name, partial(topics.add_partitions, topic, self._shards))


def _try(name: str, change: Callable[[], object]) -> None:
    try:
        change()
    except BrokerError as error:
        logger.warning("event=topic_not_made topic=%s error=%s", name, error)
