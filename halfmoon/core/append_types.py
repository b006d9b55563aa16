"""What goes into an append, what comes out of it, and who is asked on the way (core/append.py)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from halfmoon.schema import control
from halfmoon.schema.provenance import Provenance

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from halfmoon.core.catalog.topics import Partition
    from halfmoon.core.records.batches import BatchHeader
    from halfmoon.core.storage.frame import Frame

NOTHING: Final = Provenance()


class Elsewhere:
    """Where a record stands that went to another topic than it was sent to."""

    __slots__ = ("due_ms", "offset", "partition")

    def __init__(self, partition: Partition, offset: int, due_ms: int) -> None:
        """`due_ms`: when it is due there (Unix ms); 0: it does not wait."""
        self.partition = partition
        self.offset = offset
        self.due_ms = due_ms


class Produced:
    """What became of a batch."""

    __slots__ = ("append_ms", "base_offset", "position", "redirected", "start_offset")

    def __init__(
        self, base_offset: int, append_ms: int, position: int, start_offset: int, redirected: Elsewhere | None = None
    ) -> None:
        """`append_ms` is −1 unless the topic stamps its records; wait for `position`. `redirected`: the first of the
        records that went elsewhere, if any did."""
        self.base_offset = base_offset
        self.append_ms = append_ms
        self.position = position
        self.start_offset = start_offset
        self.redirected = redirected


class TransactionalProducer(NamedTuple):
    """Who sends transactional batches."""

    transactional_id: str
    adds_partitions: bool
    """Its batches add their partition to the transaction (KIP-890); else that has been asked for before."""


class ControlLog(Protocol):
    """Where a change is written down that needs no batch beside it."""

    def append_control(self, record: control.Any) -> int:
        """Write down a change and make it; returns the position to wait for. Raises BrokerError, with no change
        made."""
        ...


class TransactionGuard(Protocol):
    """Knows which producer may write transactional batches, and where."""

    def before_append(self, producer: TransactionalProducer, partition: Partition, header: BatchHeader) -> None:
        """Raises BrokerError where the batch does not belong to its producer's transaction, and AsksFirstError where
        that is not known here yet."""
        ...


class Sender(Protocol):
    """What whoever sends a batch may do, for features that act on what its records say."""

    @property
    def principal(self) -> str:
        """Such as User:alice."""
        ...

    @property
    def host(self) -> str:
        """The client's address."""
        ...

    def demands(self, uses: tuple[tuple[str, str, str | None], ...], /) -> bool:
        """Whether one of these is allowed: operation, type of the resource, and its name; None: any of the type. A
        refusal is told to whoever has to know of it."""
        ...


class Interceptor(Protocol):
    """Looks into produced batches that carry a feature's header."""

    def concerns(self, partition: Partition, body: Buffer | None) -> bool:
        """Whether somebody may have something to do with a batch of these bytes (decompressed); None: no record of it
        has a header."""
        ...

    def append(
        self,
        partition: Partition,
        batch: memoryview,
        header: BatchHeader,
        now_ms: int,
        *,
        keyed: bool,
        prepared: object = None,
        sender: Sender | None = None,
    ) -> tuple[int, int, Elsewhere | None]:
        """Append what becomes of it: the base offset (−1 where nothing stays), the position to wait for, and where the
        first of the records stands that went elsewhere. Raises BrokerError; nothing is stored then. `prepared`: what
        the steps of a TakesLongError have returned. `sender`: as of `Appender.append`."""
        ...


class KeyNotes(Protocol):
    """Is told of frames that somebody may look for by a key, or by what became of a message."""

    def note(self, position: int, length: int) -> None: ...

    def note_small(self, seen: Frame, proof: Provenance, body: bytes) -> None: ...


class Piece:
    """One batch of a frame group."""

    __slots__ = ("batch", "due_ms", "header", "original_span", "partition", "proof", "span")

    def __init__(
        self,
        partition: Partition,
        batch: memoryview,
        header: BatchHeader,
        proof: Provenance = NOTHING,
        original_span: int = -1,
        due_ms: int = 0,
    ) -> None:
        """`proof`: where it comes from; with an origin and a due time, its messages wait where they are appended.
        `original_span`: what it counts in its producer's sequence; −1: its own span."""
        self.partition = partition
        self.batch = batch
        self.header = header
        self.proof = proof
        self.original_span = original_span
        self.due_ms = due_ms
        self.span = header.last_offset_delta + 1
