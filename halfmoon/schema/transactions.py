"""What control records and snapshots say of transactional ids."""

from __future__ import annotations

from enum import Enum

from msgspec import Struct

LAST_EPOCH = (1 << 15) - 2
"""From this epoch on a producer gets a new id: the one after it fences it (Kafka: isEpochExhausted)."""
NO_PRODUCER = -1
NO_EPOCH = -1


class TransactionState(Enum):
    """Kafka's names, as clients see them. Prepared are large transactions only, and those with something in other
    shards: the end of others is one frame group."""

    EMPTY = "Empty"
    ONGOING = "Ongoing"
    PREPARE_COMMIT = "PrepareCommit"
    PREPARE_ABORT = "PrepareAbort"
    COMPLETE_COMMIT = "CompleteCommit"
    COMPLETE_ABORT = "CompleteAbort"


class Identity(Struct, frozen=True, array_like=True):
    """Who the producer of a transactional id is, and who it was before: a request may be a retry of one whose answer
    was lost (KIP-360)."""

    producer_id: int
    epoch: int
    last_producer_id: int = NO_PRODUCER
    last_epoch: int = NO_EPOCH

    @property
    def is_exhausted(self) -> bool:
        return self.epoch >= LAST_EPOCH
