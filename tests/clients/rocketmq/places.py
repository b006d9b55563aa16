"""Where a topic's partitions are for RocketMQ's clients: which broker has one, and as which of its queues.

One process is one broker, and a queue has its partition's number. Of several workers each shard is a broker, which has
the partitions that lie in it, numbered from 0 (adapters/rocketmq/queues.py).
"""

from __future__ import annotations

from collections import Counter

from halfmoon.adapters.rocketmq.names import from_rocketmq
from halfmoon.cluster.placement import SHARDS, Layout, place_named
from halfmoon.kafka_wire.messages import REQUESTS
from halfmoon.testing import Broker
from tests.several_workers import METADATA, WORKERS

ONE_BROKER = "halfmoon"


class Places:
    """Of a broker's topics. A topic is as it was when it was first asked for, with room for more partitions."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._known: dict[str, list[tuple[str, int]]] = {}
        self.brokers = {f"shard-{shard:02}" for shard in range(SHARDS)} if WORKERS else {ONE_BROKER}
        """The names of all."""

    def queue(self, topic: str, partition: int) -> tuple[str, int]:
        """(broker name, queue id), also of a partition that is not there."""
        if not WORKERS:
            return ONE_BROKER, partition
        return self._of(topic)[partition]

    def partition(self, topic: str, broker: str, queue_id: int) -> int:
        """Raises ValueError where no partition of the topic is there."""
        if not WORKERS:
            assert broker in (ONE_BROKER, None), broker  # a message that a tool has looked up does not say
            return queue_id
        return self._of(topic).index((broker, queue_id))

    def _of(self, topic: str) -> list[tuple[str, int]]:
        found = self._known.get(topic)
        if found is None:
            name = from_rocketmq(topic)
            wanted = [REQUESTS[METADATA].MetadataRequestTopic(name=name)]
            asked = self._broker.administrators[0].ask(METADATA, topics=wanted, allow_auto_topic_creation=False)
            (told,) = asked.topics
            ids = Counter[int]()
            found = self._known[topic] = []
            for shard in place_named(name, told.topic_id.bytes, 0, 4 * SHARDS, Layout.of_workers(SHARDS)):
                found.append((f"shard-{shard:02}", ids[shard]))
                ids[shard] += 1
        return found
