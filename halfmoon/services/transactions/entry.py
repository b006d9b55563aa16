"""What is known of one transactional id.

    Empty ──────────► Ongoing ──────────► CompleteCommit, CompleteAbort
      ▲  a partition or  │  ended             │
      │  a group added   ▼                    │ a partition or a group added: Ongoing again
      └── InitProducerId ◄────────────────────┘

The states' names are Kafka's, as clients see them. The end of a large transaction is not one frame group: between
Ongoing and the end it is PrepareCommit or PrepareAbort (`prepared`).
"""

from __future__ import annotations

from halfmoon.schema.transactions import Identity, TransactionState


class TransactionalId:
    """One transactional id, as it is now. Times are Unix ms; partitions are (topic number, partition)."""

    __slots__ = (
        "after", "groups", "identity", "name", "partitions", "saved", "start_ms", "state", "timeout_ms", "update_ms"
    )  # fmt: skip

    def __init__(self, name: str, identity: Identity, timeout_ms: int, update_ms: int) -> None:
        self.name = name
        self.identity = identity
        self.after: Identity | None = None
        """Of a prepared transaction: the identity once it has ended."""
        self.timeout_ms = timeout_ms
        self.state = TransactionState.EMPTY
        self.partitions: dict[tuple[int, int], None] = {}
        """What the transaction has been told to write to, in that order."""
        self.groups: dict[str, None] = {}
        """Whose offsets it is to commit."""
        self.start_ms = -1
        """When the transaction began."""
        self.update_ms = update_ms
        self.saved: bytes | None = None
        """As it stands in a snapshot, until something changes: there may be hundreds of thousands that nobody uses any
        more (Flink takes a new id for each checkpoint)."""

    @property
    def producer_id(self) -> int:
        return self.identity.producer_id

    @property
    def epoch(self) -> int:
        return self.identity.epoch

    @property
    def is_ongoing(self) -> bool:
        return self.state is TransactionState.ONGOING

    @property
    def is_prepared(self) -> bool:
        return self.after is not None

    @property
    def present(self) -> Identity:
        """Whom requests are to come from: whoever prepares an end fences with it."""
        return self.identity if self.after is None else self.after

    @property
    def due_ms(self) -> int:
        """When an ongoing transaction has taken too long."""
        return self.start_ms + self.timeout_ms

    def grow(self, partitions: list[tuple[int, int]], groups: list[str], now_ms: int) -> None:
        if not self.is_ongoing:
            self.state = TransactionState.ONGOING
            self.start_ms = now_ms
        self.partitions.update(dict.fromkeys(partitions))
        self.groups.update(dict.fromkeys(groups))
        self.update_ms = now_ms

    def prepare(self, identity: Identity, now_ms: int, *, committed: bool) -> None:
        self.state = TransactionState.PREPARE_COMMIT if committed else TransactionState.PREPARE_ABORT
        self.after = identity
        self.update_ms = now_ms

    def end(self, identity: Identity, now_ms: int, *, committed: bool) -> None:
        self.state = TransactionState.COMPLETE_COMMIT if committed else TransactionState.COMPLETE_ABORT
        self.identity = identity
        self.after = None
        self.partitions = {}
        self.groups = {}
        self.update_ms = now_ms
