"""Topics that a shard's clients make by what they do: by sending, or by being a group. All shards have them, so that
takes a change of the catalog that they share; whoever makes the same one meanwhile waits for it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

from halfmoon.adapters.rocketmq.shards import Administered, Changes
from halfmoon.core.catalog.catalog import Catalog
from halfmoon.core.catalog.topics import Topic
from halfmoon.errors import BrokerError, Fault

log = logging.getLogger("halfmoon.rocketmq")

MOST_FAILED = 1_000

Made = Callable[[Topic | BrokerError], None]


class ShardTopics:
    def __init__(
        self, catalog: Catalog, changes: Changes, new_id: Callable[[], bytes], configs: Mapping[str, str]
    ) -> None:
        """`catalog`: the shard's. `new_id`, `configs`: as Shards.new_topic_id, new_topic_configs."""
        self._configs = configs
        self._catalog = catalog
        self._changes = changes
        self._new_id = new_id
        self._making: dict[str, list[Made]] = {}
        self._failed: set[str] = set()

    def make(self, name: str, partitions: int, told: Made) -> None:
        """Make a topic, if nobody has meanwhile; told once it is there. It has a queue here: half messages are not sent
        on to another shard, and what its producers send goes here until they know better."""
        waiting = self._making.get(name)
        if waiting is not None:
            waiting.append(told)
            return
        self._making[name] = [told]

        def create(at: Administered) -> None:
            if at.catalog.topic(name) is None:
                at.administration.create_topic(name, partitions, self._configs, topic_id=self._new_id())

        self._changes.change(create, lambda error: self._made(name, error))

    def _made(self, name: str, error: Exception | None) -> None:
        topic = self._catalog.topic(name)
        found: Topic | BrokerError
        if topic is not None:
            found = topic
        elif isinstance(error, BrokerError):
            found = error
        else:
            if error is not None:
                log.error("event=topic_not_made topic=%s", name, exc_info=error)
            found = BrokerError(Fault.COORDINATOR_LOAD_IN_PROGRESS, f"topic '{name}' cannot be made now; ask again")
        for told in self._making.pop(name):
            try:
                told(found)
            except Exception:
                log.exception("event=callback_failed")

    def failed(self, name: str) -> None:
        """It is to be made when there is time."""
        if len(self._failed) < MOST_FAILED:
            self._failed.add(name)

    def take_failed(self) -> set[str]:
        failed, self._failed = self._failed, set()
        return failed
