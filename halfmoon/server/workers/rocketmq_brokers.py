"""RocketMQ's brokers of a data directory with shards: their names, their addresses, and which queues each has."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from halfmoon.adapters.rocketmq.shards import Broker, Holder
from halfmoon.cluster.shared import SharedCatalog
from halfmoon.config.listener_settings import RocketmqListener
from halfmoon.core.catalog.topics import Topic

LONGEST = 100
"""Of a broker's name, as in broker.yaml."""


def broker_name(shard: int, configured: str) -> str:
    """It stays with the shard, whichever process has that, so a queue keeps its identity."""
    name = f"shard-{shard:02d}"
    prefixed = f"{configured}-{name}"
    return name if configured == RocketmqListener().broker_name or len(prefixed) > LONGEST else prefixed


def listener_of(listener: RocketmqListener, shard: int) -> RocketmqListener:
    """The listener of a shard: ports are counted up from the configured one, unless any will do."""
    bind, advertise = listener.bind, listener.advertise
    return replace(
        listener,
        broker_name=broker_name(shard, listener.broker_name),
        bind=bind if not bind.port else bind._replace(port=bind.port + shard),
        advertise=None if advertise is None else advertise._replace(port=advertise.port + shard),
    )


class RocketmqBrokers:
    """See adapters/rocketmq/shards.Brokers."""

    def __init__(self, shared: SharedCatalog, configured: str, addresses: Mapping[int, tuple[str, int]]) -> None:
        """`configured`: the broker's name in broker.yaml. `addresses`: shard → host ("": where the client has reached
        us) and port of its listener, of those that somebody has now. Whoever knows better changes it."""
        self._shared = shared
        self._configured = configured
        self._addresses = addresses

    def all(self) -> Sequence[Broker]:
        return [self._broker(shard) for shard in sorted(self._addresses)]

    def of_topic(self, topic: Topic) -> Sequence[tuple[Broker, int]]:
        counts = Counter(self._shared.placements.get(topic.number, b""))
        return [(self._broker(shard), counts[shard]) for shard in sorted(counts) if shard in self._addresses]

    def holder(self, topic: Topic, index: int) -> Holder | None:
        shard = self._shared.shard_of(topic.number, index)
        if shard not in self._addresses:
            return None
        number = self._shared.catalog.by_number[topic.number].partitions[index].queue_number
        before = self._shared.placements[topic.number][:index]
        return Holder(self._broker(shard), before.count(shard), number)

    def _broker(self, shard: int) -> Broker:
        host, port = self._addresses[shard]
        return Broker(broker_name(shard, self._configured), host, port)
