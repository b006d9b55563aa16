"""What one partition knows of producers' transactions: which are open, which were aborted, what is stable.

    start_offset ≤ stable_offset ≤ end_offset (high watermark)

A transaction is *open* from its first batch on until its marker is visible. Until then what it wrote may still be lost
together with the marker, so it is not stable, although the producer may have been told nothing yet. That is why an end
that was appended counts only when the partition's visible end has passed it.

Changed in the loop only; questions change nothing, so a thread may ask them.

Rules: ProducerStateManager, LogOffsetMetadata firstUnstableOffset, in Kafka's storage module.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from halfmoon.core.transactions.aborted import Aborted, AbortedTransactions


class _Ending(NamedTuple):
    """A transaction whose marker is appended, and was not visible then."""

    marker_offset: int
    first_offset: int


class PartitionTransactions:
    __slots__ = ("_ending", "_first_open", "aborted", "open")

    def __init__(self, open_: Iterable[tuple[int, int]] = (), aborted: bytes = b"") -> None:
        """`open_`: producer ids, and the offsets of the first batches of their transactions; `aborted`: as
        AbortedTransactions.to_bytes gives it."""
        self.open = dict(open_)
        """Producer id → offset of the first batch of its transaction, in the order of these offsets."""
        self.aborted = AbortedTransactions(aborted)
        self._first_open = next(iter(self.open.values()), None)
        self._ending: tuple[_Ending, ...] = ()

    def began(self, producer_id: int, offset: int) -> None:
        """A transactional batch was appended."""
        self.open.setdefault(producer_id, offset)
        if self._first_open is None:
            self._first_open = offset

    def ended(self, producer_id: int, marker_offset: int, end_offset: int, *, committed: bool) -> None:
        """A marker was appended; what is visible ends at `end_offset`. Nothing changes where the producer has no
        transaction open here."""
        first_offset = self.open.pop(producer_id, None)
        if first_offset is None:
            return
        first_open = next(iter(self.open.values()), None)
        if not committed:
            stable_offset = marker_offset + 1 if first_open is None else first_open
            self.aborted.add(Aborted(producer_id, first_offset, marker_offset), stable_offset)
        # In this order: at no moment does it look stable before it is.
        endings = self._ending
        if endings and endings[0].marker_offset < end_offset:
            endings = tuple(each for each in endings if each.marker_offset >= end_offset)
        if marker_offset >= end_offset:
            endings = (*endings, _Ending(marker_offset, first_offset))
        self._ending = endings
        self._first_open = first_open

    def stable_offset(self, end_offset: int) -> int:
        """The first offset that is not decided yet; `end_offset`, where what is visible ends, if all is."""
        first = self._first_open
        stable = end_offset if first is None else min(first, end_offset)
        for each in self._ending:
            if each.marker_offset >= end_offset and each.first_offset < stable:
                stable = each.first_offset
        return stable

    def aborted_in(self, low: int, high: int) -> Iterator[Aborted]:
        """The aborted transactions with batches in the offsets [low, high)."""
        return self.aborted.overlapping(low, high)

    def forget(self, start_offset: int) -> None:
        """Offsets below `start_offset` are gone, or those there of aborted transactions are."""
        self.aborted.forget(start_offset)
