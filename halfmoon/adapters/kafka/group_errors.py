"""Error codes that group APIs have in common."""

from __future__ import annotations

from halfmoon.adapters.kafka.errors import code, code_of
from halfmoon.errors import BrokerError, Fault

OFFSET_METADATA_TOO_LARGE = 12
"""It has no fault of its own: how much a client may write beside an offset is this protocol's business."""

MAX_METADATA_LENGTH = 4096
"""Characters of a commit's metadata (Kafka: offset.metadata.max.bytes, which counts characters too)."""


_COORDINATORS_WORDS = {
    Fault.KAFKA_STORAGE_ERROR: code(Fault.COORDINATOR_NOT_AVAILABLE),
    Fault.NOT_LEADER_OR_FOLLOWER: code(Fault.NOT_COORDINATOR),
}


def coordinator_code(error: Exception) -> int:
    """The code of an error met while the state of a group or of a transaction was changed.

    How its own log stands a coordinator tells as Kafka's do (CoordinatorOperationExceptionHelper,
    TransactionStateManager). A log that takes no writes: COORDINATOR_NOT_AVAILABLE, which clients retry until their own
    time-out. One that another node writes now: NOT_COORDINATOR, and they look for that node. KAFKA_STORAGE_ERROR (56)
    and NOT_LEADER_OR_FOLLOWER (6) would be a surprise to them: a commit fails for good, and a producer is dead.
    """
    if isinstance(error, BrokerError) and error.fault in _COORDINATORS_WORDS:
        return _COORDINATORS_WORDS[error.fault]
    return code_of(error)
