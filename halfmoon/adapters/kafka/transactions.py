"""What the APIs of producers' transactions have in common."""

from __future__ import annotations

from halfmoon.adapters.kafka.errors import code
from halfmoon.adapters.kafka.group_errors import coordinator_code
from halfmoon.adapters.tcp.core import Core
from halfmoon.core.catalog.topics import Partition
from halfmoon.errors import BrokerError, Fault


def transaction_code(error: Exception, *, knows_fencing: bool) -> int:
    """The code of an error met in a transaction. Clients that do not know PRODUCER_FENCED (90) take
    INVALID_PRODUCER_EPOCH (47) for it."""
    if isinstance(error, BrokerError) and error.fault is Fault.PRODUCER_FENCED and not knows_fencing:
        return code(Fault.INVALID_PRODUCER_EPOCH)
    return coordinator_code(error)


def known_partition(core: Core, topic: str, index: int) -> Partition | None:
    """The partition, if clients may write to it."""
    found = core.catalog.topic(topic)
    if found is None or found.internal or not 0 <= index < len(found.partitions):
        return None
    return found.partitions[index]
