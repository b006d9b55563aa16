"""Batches that could not be appended at once: older messages had to be read first, or they take longer than a turn of
the loop (errors.NotHereYetError, TakesLongError)."""

from __future__ import annotations

from halfmoon.adapters.tcp.core import Core
from halfmoon.core.append_types import Produced, Sender
from halfmoon.core.catalog.topics import Partition
from halfmoon.core.relay import tried
from halfmoon.core.steps import Slices
from halfmoon.errors import BrokerError, Fault, NotHereYetError, TakesLongError


def append_late(core: Core, partition: Partition, batch: memoryview, sender: Sender | None = None) -> Slices[Produced]:
    """Append a batch, whatever has to be done before. Raises BrokerError."""
    prepared: object = None
    while True:
        try:
            if core.catalog.partition(partition.topic.number, partition.index) is not partition:
                raise BrokerError(Fault.UNKNOWN_TOPIC_OR_PARTITION, "the topic was deleted")
            return core.append(partition, batch, core.clock.wall_ms(), prepared=prepared, sender=sender)
        except NotHereYetError as error:
            slices, load = None, error.load
        except TakesLongError as error:
            slices = error.steps(batch)
        if slices is not None:
            prepared = yield from slices
            continue
        failure = yield tried(load)
        if isinstance(failure, OSError):
            raise BrokerError(Fault.KAFKA_STORAGE_ERROR, f"the log cannot be read now: {failure}")
