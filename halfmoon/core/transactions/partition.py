"""What one partition knows of producers' transactions: which are open, which were aborted, what is stable.

    start_offset ≤ stable_offset ≤ end_offset (high watermark)

A transaction is *open* from its first batch on until its marker is visible. Until then what it wrote may still be lost
together with the marker, so it is not stable, although the producer may have been told nothing yet. That is why an end
that was appended counts only when the partition's visible end has passed it.

Rules: ProducerStateManager, LogOffsetMetadata firstUnstableOffset, in Kafka's storage module.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

from halfmoon.core.batch_header import BatchHeader
from halfmoon.core.transactions.aborted import Aborted, AbortedTransactions, is_hidden


class _Ending(NamedTuple):
    """A transaction whose marker is appended, and not known to be visible."""

    marker_offset: int
    first_offset: int


class PartitionTransactions:
    __slots__ = ("_ending", "aborted", "open")

    def __init__(self) -> None:
        self.open: dict[int, int] = {}
        """Producer id → offset of the first batch of its transaction, in the order of these offsets."""
        self.aborted = AbortedTransactions()
        self._ending: deque[_Ending] = deque()

    def began(self, producer_id: int, offset: int) -> None:
        """A transactional batch was appended."""
        self.open.setdefault(producer_id, offset)

    def ended(self, producer_id: int, marker_offset: int, *, committed: bool) -> None:
        """A marker was appended. Nothing changes where the producer has no transaction open here."""
        first_offset = self.open.pop(producer_id, None)
        if first_offset is None:
            return
        self._ending.append(_Ending(marker_offset, first_offset))
        if not committed:
            stable_offset = next(iter(self.open.values()), marker_offset + 1)
            self.aborted.add(Aborted(producer_id, first_offset, marker_offset), stable_offset)

    def stable_offset(self, end_offset: int) -> int:
        """The first offset that is not decided yet; `end_offset` where all is."""
        ending = self._ending
        while ending and ending[0].marker_offset < end_offset:
            ending.popleft()
        first = next(iter(self.open.values()), end_offset)
        for each in ending:
            first = min(first, each.first_offset)
        return min(first, end_offset)

    def hides(self, header: BatchHeader) -> bool:
        """Whether a batch below the stable offset is nothing for a reader of committed records: a marker, or of an
        aborted transaction."""
        offset = header.base_offset
        return is_hidden(header, self.aborted.overlapping(offset, offset + 1))

    def aborted_in(self, low: int, high: int) -> Iterator[Aborted]:
        """The aborted transactions with batches in the offsets [low, high)."""
        return self.aborted.overlapping(low, high)

    def forget(self, start_offset: int) -> None:
        """Offsets below `start_offset` are gone, or those there of aborted transactions are."""
        self.aborted.forget(start_offset)
