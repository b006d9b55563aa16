"""Reading for share partitions: whole batches as they lie in the log, and which of their records may be given out.

Batches stay as they came: a fetch is answered with slices of the mapped log, and with the list of the offsets that the
member has acquired in them. So nothing is decoded here but the header of a transactional batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from halfmoon.core.batch_header import CONTROL, TRANSACTIONAL, parse_header
from halfmoon.core.errors import BrokerError, Fault
from halfmoon.core.share.share_partition import Acquired, Extent
from halfmoon.core.transactions.aborted import Aborted, AbortedBatches

if TYPE_CHECKING:
    from halfmoon.core.broker import Broker
    from halfmoon.core.catalog import Partition

_ATTRIBUTES_AT = 22
"""In a batch: the lower byte of its attributes (batch_header.HEADER)."""

Buffer = memoryview | bytes


class Loading(NamedTuple):
    """To be run in a thread; it returns the batches' slices."""

    load: Callable[[], Sequence[memoryview]]
    first: int
    batches: list[Extent]


class Found:
    """What was read, and what of it is given out."""

    __slots__ = ("acquired", "batches", "slices")

    def __init__(self, slices: Sequence[Buffer], batches: list[Extent]) -> None:
        self.slices = slices
        self.batches = batches
        self.acquired: list[Acquired] = []

    @property
    def size(self) -> int:
        return sum(map(len, self.slices))

    def holes(self, first: int, aborted: Sequence[Aborted]) -> Iterator[Extent]:
        """Offsets from `first` on that nobody is to get: between batches, control batches, aborted ones."""
        at, hidden = first, AbortedBatches(aborted)
        for piece, batch in zip(self.slices, self.batches, strict=True):
            if batch.first > at:
                yield Extent(at, batch.first)
            at = max(at, batch.end)
            attributes = piece[_ATTRIBUTES_AT]
            if attributes & CONTROL or (attributes & TRANSACTIONAL and aborted and hidden.hold(parse_header(piece))):
                yield batch

    def cut(self) -> Found:
        """Leave only batches that hold something that was acquired."""
        slices, batches, at = [], [], 0
        acquired = self.acquired
        for piece, batch in zip(self.slices, self.batches, strict=True):
            while at < len(acquired) and acquired[at].end <= batch.first:
                at += 1
            if at == len(acquired):
                break
            if acquired[at].first < batch.end:
                slices.append(piece)
                batches.append(batch)
        self.slices, self.batches = slices, batches
        return self


class Reading:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def read(self, partition: Partition, first: int, end: int, max_bytes: int) -> Found | Loading:
        """The batches that have offsets in [first, end), as many as `max_bytes` hold and one at least. Raises
        BrokerError(CORRUPT_MESSAGE)."""
        queue = partition.queue
        if queue.damaged and queue.damage_at(first):
            raise BrokerError(Fault.CORRUPT_MESSAGE, f"offset {first} of {partition!r} was lost to a damaged disk")
        rows = queue.rows_upto(first, end, max_bytes)
        batches = [Extent(base, base + span) for base, span, _, _ in rows]
        read = self._broker.reader.read([(position, length) for _, _, position, length in rows])
        if read.cold is not None:
            return Loading(read.cold, first, batches)
        return Found(read.slices, batches)
