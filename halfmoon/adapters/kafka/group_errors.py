"""Error codes that group APIs have in common."""

from __future__ import annotations

from halfmoon.adapters.kafka.errors import code, code_of
from halfmoon.errors import BrokerError, Fault

OFFSET_METADATA_TOO_LARGE = 12
"""It has no fault of its own: how much a client may write beside an offset is this protocol's business."""

MAX_METADATA_LENGTH = 4096
"""Characters of a commit's metadata (Kafka: offset.metadata.max.bytes, which counts characters too)."""


def coordinator_code(error: Exception) -> int:
    """The code of an error met while a group's state was changed.

    A log that takes no writes is told as COORDINATOR_NOT_AVAILABLE, as Kafka tells a failed append: clients retry that
    until their own time-out, where KAFKA_STORAGE_ERROR (56) would be a surprise to them.
    """
    if isinstance(error, BrokerError) and error.fault is Fault.KAFKA_STORAGE_ERROR:
        return code(Fault.COORDINATOR_NOT_AVAILABLE)
    return code_of(error)
