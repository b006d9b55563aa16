"""Batches that could not be appended at once, because older messages had to be read first (errors.NotHereYetError)."""

from __future__ import annotations

from halfmoon.adapters.tcp.core import Core
from halfmoon.core.append import Produced
from halfmoon.core.catalog.topics import Partition
from halfmoon.errors import BrokerError, Fault


def append_again(core: Core, partition: Partition, batch: memoryview) -> Produced:
    """Raises NotHereYetError, BrokerError."""
    if core.catalog.partition(partition.topic.number, partition.index) is not partition:
        raise BrokerError(Fault.UNKNOWN_TOPIC_OR_PARTITION, "the topic was deleted")
    return core.append(partition, batch, core.clock.wall_ms())
